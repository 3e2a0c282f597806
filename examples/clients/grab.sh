#!/usr/bin/env bash
# Grabs once, with curl and openssl: grab.sh URL CAMPAIGN USER. EXAMPLE_SECRET has the secret of the key "k1". Your
# identity provider signs the tokens of real users; ISSUER and AUDIENCE are serve.issuer and serve.audience.
set -euo pipefail
url=$1 campaign=$2 user=$3
request=$(openssl rand -hex 8) # one id for each tap; repeats of the tap use the same id

base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
head=$(printf '{"alg":"HS256","typ":"JWT","kid":"k1"}' | base64url)
body=$(printf '{"iss":"%s","aud":"%s","sub":"%s","device_id":"%s-phone","exp":%d}' \
	"$ISSUER" "$AUDIENCE" "$user" "$user" "$(($(date +%s) + 60))" | base64url)
sign=$(printf '%s.%s' "$head" "$body" | openssl dgst -sha256 -hmac "$EXAMPLE_SECRET" -binary | base64url)

# --retry repeats after a broken connection, and after 408, 429 and 5xx when Retry-After has passed. This is safe,
# because the request id stays the same.
curl -sS --fail-with-body --retry 10 --retry-all-errors --max-time 60 -H "Authorization: Bearer $head.$body.$sign" \
	-H 'Content-Type: application/json' -d "{\"request_id\":\"$request\"}" "$url/v1/campaigns/$campaign/grabs"
echo
