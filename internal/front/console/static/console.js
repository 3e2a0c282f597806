// Takes the server-sent events of a page: HTML that the server has made.
"use strict";
// The text of a link follows the #, which browsers do not send. This sends it, and takes it out of the address.
(() => {
  const form = document.getElementById("watch");
  const open = () => {
    if (location.hash.length < 2) return;
    document.getElementById("link").value = location.hash.slice(1);
    history.replaceState(null, "", location.pathname);
    form.submit();
  };
  if (!form) return;
  addEventListener("hashchange", open);
  open();
})();

// The picture of a result is SVG. This saves it as PNG, with the fonts of the reader's system.
document.documentElement.classList.add("script");
document.addEventListener("click", (e) => {
  if (e.target.id !== "png") return;
  const svg = new Image(1200, 630);
  svg.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [2400, 1260];
    canvas.getContext("2d").drawImage(svg, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((png) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(png);
      link.download = e.target.dataset.name + ".png";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    });
  };
  svg.src = document.getElementById("picture").href;
});

(() => {
  const live = document.getElementById("live");
  if (!live) return;
  const status = document.getElementById("status");
  const words = status.dataset; // the texts in the language of the page
  const say = (text) => { if (status.textContent !== text) status.textContent = text; };

  // A page that is older than three refreshes is grey under a red bar: nobody takes what it shows for what is.
  const refresh = Number(document.body.dataset.every) || 1000;
  const old = document.createElement("p");
  old.id = "old";
  old.setAttribute("role", "alert");
  let shown = Date.now();
  let ended = false; // the session
  const age = () => {
    if (ended) return;
    const stale = Date.now() - shown > Math.max(3 * refresh, 3000);
    if (stale === document.body.classList.contains("stale")) return;
    document.body.classList.toggle("stale", stale);
    if (!stale) { old.remove(); return; }
    old.textContent = words.old.replace("{}", time(shown));
    live.before(old);
  };

  const time = (at) => live.dataset.zone
    ? new Date(at).toLocaleTimeString("en-GB", { timeZone: live.dataset.zone }) : new Date(at).toISOString().slice(11, 19) + " UTC";

  // Times of people's own work are in the zone of who reads them, with UTC beside it.
  const localize = () => {
    for (const t of document.querySelectorAll("time[data-local]")) {
      const at = new Date(t.dateTime);
      if (at.getTimezoneOffset() !== 0) t.textContent = at.toLocaleString("sv-SE") + " (" + at.toISOString().slice(11, 19) + " UTC)";
    }
  };
  localize();

  // morph makes an element like a new one, and leaves what did not change: so the focus, a scrolled table, a selected
  // text and an opened detail stay where they are, and a screen reader says nothing twice.
  const same = (a, b) => a.nodeName === b.nodeName && (a.id ?? "") === (b.id ?? "");
  const cut = (from, to) => { while (from !== to) { const next = from.nextSibling; from.remove(); from = next; } };
  const morph = (old, now) => {
    if (old.isEqualNode(now)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) { old.nodeValue = now.nodeValue; return; }
    for (const a of [...old.attributes]) if (!now.hasAttribute(a.name) && a.name !== "open") old.removeAttribute(a.name);
    for (const a of now.attributes) if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
    let at = old.firstChild;
    for (const child of [...now.childNodes]) {
      let match = at; // an element with an id is found behind others too: those have gone
      while (match && child.id && !same(match, child)) match = match.nextSibling;
      if (!match || !same(match, child)) { old.insertBefore(child, at); continue; }
      cut(at, match);
      morph(match, child);
      at = match.nextSibling;
    }
    cut(at, null);
  };
  const replace = (html) => {
    const focused = document.activeElement?.closest("[data-part]") ? document.activeElement.id : "";
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    for (const part of fresh.content.querySelectorAll("[data-part]")) {
      const old = document.querySelector(`[data-part="${part.dataset.part}"]`);
      if (old) morph(old, part);
    }
    localize();
    const again = focused && document.getElementById(focused); // it has moved to another row
    if (again && again !== document.activeElement) again.focus({ preventScroll: true });
  };

  // An EventSource comes back after a lost connection, but never after an answer that is not 200: from a server that
  // ends, or a proxy that has none. A new one is opened then, after 2 s, and later each time, up to 30 s.
  const url = "/events?page=" + encodeURIComponent(live.dataset.page);
  let source, timer, wait = 2000;
  let heard = 0, read = 0; // when the server said anything last, and when it sent this page as it was then
  // The page stays as it was, in grey, with the way back to it.
  const over = () => {
    source.close();
    ended = true;
    read = heard = 0;
    say(words.over);
    old.textContent = words.ended.replace("{}", time(shown)) + " ";
    if (words.login) { // the reader of a link has no login
      const link = document.createElement("a");
      link.href = "/login?to=" + encodeURIComponent(location.pathname + location.search);
      link.textContent = words.login;
      old.append(link);
    }
    document.body.classList.add("stale");
    live.before(old);
  };
  const connect = () => {
    source = new EventSource(url);
    heard = Date.now();
    const on = (name, does) => source.addEventListener(name, (e) => { heard = Date.now(); does(e); });
    const show = (text) => (e) => { wait = 2000; read = shown = heard; replace(e.data); say(text); age(); };
    on("live", show(words.live));
    on("partial", show(words.partial));
    on("still", () => {});
    on("frame", (e) => replace(e.data));
    on("trouble", (e) => { read = 0; say(words.trouble + " " + e.data); });
    on("ending", () => { read = 0; say(words.ending); });
    on("over", over);
    source.addEventListener("error", () => {
      read = 0;
      say(words.lost);
      if (source.readyState === EventSource.CLOSED) retry();
    });
  };
  const retry = () => {
    heard = 0;
    timer = setTimeout(async () => {
      const stop = new AbortController(); // an EventSource does not tell the status, so this asks for it
      const impatient = setTimeout(() => stop.abort(), 10000);
      const status = await fetch(url, { signal: stop.signal }).then((r) => r.status, () => 0);
      clearTimeout(impatient);
      stop.abort();
      if (status === 401) over(); else if (status === 404) say(words.reload); else connect();
    }, wait * (1 + Math.random() / 2));
    wait = Math.min(wait * 2, 30000);
  };
  // A connection to a server that hangs stays open and says nothing. A server that works sends something every 4 s, and
  // the page itself unless reading it takes long.
  setInterval(() => {
    age();
    const now = Date.now();
    if (heard && now - heard > 10000) {
      say(words.silent.replace("{}", time(heard)));
      source.close();
      read = 0;
      retry();
    } else if (read && now - read > 10000) say(words.old.replace("{}", time(read)));
  }, 1000);
  connect();
  addEventListener("pagehide", () => { clearTimeout(timer); source.close(); });
  addEventListener("pageshow", (e) => { if (e.persisted) location.reload(); });
})();
