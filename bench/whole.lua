-- For wrk: posts the file that BODY_FILE names, with the headers of HEADERS (one a line), and prints what came of it as one JSON line.

local file = assert(io.open(assert(os.getenv("BODY_FILE"), "BODY_FILE is not set"), "rb"))
local body = file:read("*a")
file:close()

wrk.method = "POST"
wrk.body = body
wrk.headers["Content-Type"] = "application/json"
for name, value in (os.getenv("HEADERS") or ""):gmatch("([^:\n]+): *([^\n]+)") do
  wrk.headers[name] = value
end

function done(summary, latency)
  local lost = summary.errors
  print(string.format(
    '{"answers":%d,"seconds":%.4f,"p50_ms":%.4f,"p99_ms":%.4f,"refused":%d,"broken":%d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    lost.status, lost.connect + lost.read + lost.write + lost.timeout))
end
