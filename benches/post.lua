-- Script for wrk: sends the requests of a file, byte for byte, one after the other.
--
--   wrk -t1 ... -s post.lua URL -- FILE LIMIT
--
-- A record of FILE is eight digits that tell the length of a request, and the request. After LIMIT requests, or at
-- the end of the file, it begins again and says so. Ends with one line that a program can read:
--
--   RESULT <answers> <microseconds> <p50 us> <p99 us> <bad answers> <times begun again>

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init(arguments)
  file = assert(io.open(arguments[1], "rb"))
  limit = tonumber(arguments[2])
  sent = 0
  rewound = 0
end

function request()
  local length = sent < limit and file:read(8)
  if not length then
    file:seek("set")
    sent = 0
    rewound = rewound + 1
    length = file:read(8)
  end
  sent = sent + 1
  return file:read(tonumber(length))
end

function done(summary, latency, requests)
  local errors = summary.errors
  local rewinds = 0
  for _, thread in ipairs(threads) do
    rewinds = rewinds + thread:get("rewound")
  end
  io.write(string.format("RESULT %d %d %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout, rewinds))
end
