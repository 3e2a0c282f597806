// Grabs once, with Node 18 or newer and nothing else: node grab.mjs URL CAMPAIGN USER. EXAMPLE_SECRET has the
// secret of the key "k1". Your identity provider signs the tokens of real users; ISSUER and AUDIENCE are serve.issuer
// and serve.audience.
import { createHmac, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

function token(user) {
  const part = (o) => Buffer.from(JSON.stringify(o)).toString('base64url');
  const exp = Math.floor(Date.now() / 1000) + 60;
  const text = part({ alg: 'HS256', typ: 'JWT', kid: 'k1' }) + '.' +
    part({ iss: process.env.ISSUER, aud: process.env.AUDIENCE, sub: user, device_id: `${user}-phone`, exp });
  return text + '.' + createHmac('sha256', process.env.EXAMPLE_SECRET).update(text).digest('base64url');
}

// grab sends one grab until it is decided: every repeat has the same request id, so it gets the same answer.
async function grab(url, campaign, user, requestId) {
  for (let attempt = 0; attempt < 10; attempt++) {
    let pause = Math.min(100 * 2 ** attempt, 2000);
    try {
      const answer = await fetch(`${url}/v1/campaigns/${campaign}/grabs`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${token(user)}`, 'Content-Type': 'application/json' },
        body: JSON.stringify({ request_id: requestId }),
        signal: AbortSignal.timeout(30_000),
      });
      const body = await answer.json();
      if (answer.ok) return body;
      if (![408, 429, 503].includes(answer.status)) throw Object.assign(new Error(body.detail), { final: true });
      pause = 1000 * Number(answer.headers.get('Retry-After') ?? pause / 1000);
    } catch (e) {
      if (e.final) throw e; // after any other error the grab may have been granted: repeat it
    }
    await sleep(pause);
  }
  throw new Error('no answer; the same request id may be sent later');
}

const [url, campaign, user] = process.argv.slice(2);
console.log(JSON.stringify(await grab(url, campaign, user, randomBytes(8).toString('hex'))));
