// Takes the server-sent events of a page: the live part comes as HTML that the server has made, the chart as numbers.
"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live) return;
  const status = document.getElementById("status");
  const say = (text) => { if (status.textContent !== text) status.textContent = text; };

  // The chart of grants a second; its colours are those of the page.
  const place = document.getElementById("rates");
  const rates = [[], [], [], []];
  let chart = null;
  const colour = (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const c = getComputedStyle(probe).color;
    probe.remove();
    return c;
  };
  const draw = () => {
    if (!place || typeof uPlot === "undefined") return;
    if (chart) { chart.destroy(); chart = null; }
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--edge"), width: 1 }, ticks: { stroke: colour("--edge") } };
    chart = new uPlot({
      width: place.clientWidth, height: 220, legend: { live: true }, cursor: { y: false },
      scales: { x: { range: (u, min, max) => [Math.min(min, max - 60), max] }, y: { range: (u, min, max) => [0, Math.max(max, 1)] } },
      axes: [axis, { ...axis, size: 60 }],
      series: [{ label: "Time" },
        { label: "Granted a second", stroke: colour("--bar"), width: 2 },
        { label: "Paid a second", stroke: colour("--line"), width: 2, dash: [6, 4] },
        { label: "Grabs a second, by this server", stroke: colour("--gold"), width: 2, dash: [2, 3] }],
    }, rates, place);
  };
  const add = (points) => {
    for (const p of points) {
      const at = Date.parse(p.at) / 1000;
      if (rates[0].length && at <= rates[0][rates[0].length - 1]) continue;
      rates[0].push(at); rates[1].push(p.Granted); rates[2].push(p.Settled); rates[3].push(p.Answered);
      if (rates[0].length > 300) rates.forEach((r) => r.shift());
    }
    if (chart) chart.setData(rates); else draw();
    const last = (n) => (rates[n].at(-1) ?? 0).toLocaleString("en", { maximumFractionDigits: 1 });
    const at = new Date((rates[0].at(-1) ?? 0) * 1000).toISOString().slice(11, 19);
    document.getElementById("rates-now").textContent =
      `At ${at} UTC, a second: ${last(1)} granted, ${last(2)} paid, and ${last(3)} grabs answered by this server.`;
  };
  if (place) {
    new ResizeObserver(() => { if (chart) chart.setSize({ width: place.clientWidth, height: 220 }); }).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  }

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
    const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    for (const part of fresh.content.querySelectorAll("[data-part]")) {
      const old = live.querySelector(`[data-part="${part.dataset.part}"]`);
      if (old) morph(old, part);
    }
    const again = focused && document.getElementById(focused); // it has moved to another row
    if (again && again !== document.activeElement) again.focus({ preventScroll: true });
  };

  // An EventSource comes back after a lost connection, but never after an answer that is not 200: from a server that
  // ends, or a proxy that has none. A new one is opened then, after 2 s, and later each time, up to 30 s.
  const url = "/events?page=" + encodeURIComponent(live.dataset.page);
  const over = () => say("Your session is over. Log in again.");
  let source, timer, wait = 2000;
  const connect = () => {
    source = new EventSource(url);
    source.addEventListener("live", (e) => { wait = 2000; replace(e.data); say("Live"); });
    source.addEventListener("rates", (e) => add(JSON.parse(e.data)));
    source.addEventListener("trouble", (e) => say("Not up to date: " + e.data));
    source.addEventListener("ending", () => say("This server is ending. Connecting again."));
    source.addEventListener("over", () => { source.close(); over(); });
    source.addEventListener("error", () => {
      say("The connection is lost. Connecting again.");
      if (source.readyState === EventSource.CLOSED) retry();
    });
  };
  const retry = () => {
    timer = setTimeout(async () => {
      const stop = new AbortController(); // an EventSource does not tell the status, so this asks for it
      const status = await fetch(url, { signal: stop.signal }).then((r) => r.status, () => 0);
      stop.abort();
      if (status === 401) over(); else if (status === 404) say("Not live: load the page again."); else connect();
    }, wait * (1 + Math.random() / 2));
    wait = Math.min(wait * 2, 30000);
  };
  connect();
  addEventListener("pagehide", () => { clearTimeout(timer); source.close(); });
  addEventListener("pageshow", (e) => { if (e.persisted) location.reload(); });
})();
