-- What scripts see. All that they can name is in a table that no script can write: they see an empty one in front of it, whose
-- metatable reads what is behind. `raw`: the libraries as Lua has them, which no script reaches. `rust`: functions in Rust; those
-- that make values return `true` and their result, or `false` and why not. None is called with more arguments than it has places
-- for, and none but `piece` raises an error.
local raw, rust, constants = ...
local shown = {}

local error, type, select, tostring = raw.error, raw.type, raw.select, raw.tostring
local next, pairs, ipairs = raw.next, raw.pairs, raw.ipairs
local rawget, rawset, getmetatable, setmetatable = raw.rawget, raw.rawset, raw.getmetatable, raw.setmetatable
local pcall, xpcall, unpack = raw.pcall, raw.xpcall, raw.unpack
local load, loadstring = raw.load, raw.loadstring
local collectgarbage = raw.collectgarbage
local byte, sub, rep = raw.string.byte, raw.string.sub, raw.string.rep
local concat, insert, remove, sort = raw.table.concat, raw.table.insert, raw.table.remove, raw.table.sort
local resume = raw.coroutine.resume

-- Values of one call that Rust holds at once; it has room for its own besides.
local ARGUMENTS_MAX = 7500
-- Places that a function of C has for its arguments and results.
local PLACES_MAX = 8000
local INTEGER_MAX = 2147483647
-- Most functions of a library.
local FUNCTIONS_MAX = 1000
local READONLY = 'Attempt to modify a readonly table'
-- Chunks have no name that a script chooses: a name that nothing else holds might be collected while the chunk is compiled.
local CHUNK, LIBRARY_CHUNK = '@user_script', '@user_function'
-- The error that ends a script.
local STOP = {}
local NO_MEMORY = 'not enough memory'

-- What is behind the tables that are shown.
local behind = {}

local function refuse() error(READONLY, 2) end

local function seal(content, front)
  front = front or {}
  behind[front] = content
  return setmetatable(front, { __index = content, __newindex = refuse, __metatable = false })
end

-- Called behind what may have been long work: the script ends here if it is to.
local function looks()
  if not rust.look() then error(STOP, 0) end
end

-- True if the script ends, whatever was raised: what it catches then is not its own.
local function stops(err) return err == STOP or rust.stops() end

-- Errors ------------------------------------------------------------------------------------------------------------

-- Results of `pcall`: an error that is a table becomes its text, as in Redis.
local function caught(ok, ...)
  if ok then return true, ... end
  local err = ...
  if stops(err) then error(err, 0) end
  if type(err) == 'table' then
    local text = rawget(err, 'err')
    -- A table without a text is returned, with what it has in place of the text.
    if type(text) ~= 'string' and type(text) ~= 'number' then return false, err, text end
    err = text
  elseif type(err) == 'userdata' and err ~= constants.null then
    err = tostring(err)
  end
  return false, err
end

local function ended(ok, ...)
  if not ok and stops((...)) then error((...), 0) end
  return ok, ...
end

-- Results of a function of Lua's. Its errors say where the script called it, and not where the sandbox did.
local function told(name, ok, ...)
  if ok then return ... end
  local err = ...
  if type(err) == 'string' then
    local from, to = raw.string.find(err, "^sandbox:%d+: ")
    if from then err = sub(err, to + 1) end
    err = raw.string.gsub(err, "to '%?'", "to '" .. name .. "'", 1)
  end
  error(err, err == STOP and 0 or 3)
end

-- Raises an error about the nth argument of the function that is so many calls up from the one that calls this (1: that one
-- itself). What is before the colon of a method's call is not counted.
local function wrong(up, n, name, what)
  if rust.is_method(up + 1) then
    n = n - 1
    if n == 0 then error("calling '" .. name .. "' on bad self (" .. what .. ')', up + 2) end
  end
  error('bad argument #' .. n .. " to '" .. name .. "' (" .. what .. ')', up + 2)
end

-- Says what the nth of these arguments is, where something else is expected.
local function expected(what, n, ...)
  local got = select('#', ...) < n and 'no value' or type((select(n, ...)))
  return what .. ' expected, got ' .. got
end

local base = {}

function base.pcall(...)
  -- Redis finds a value of its own there.
  if (...) == nil and select('#', ...) == 0 then return false, 'attempt to call a boolean value' end
  return caught(pcall(...))
end

function base.xpcall(...)
  if select('#', ...) < 2 then wrong(1, 2, 'xpcall', 'value expected') end
  local run, handler = ...
  return ended(xpcall(run, function(err)
    if stops(err) then return err end
    return handler(err)
  end))
end

-- Tables ------------------------------------------------------------------------------------------------------------

-- Only what a script does itself says where it wrote to something read-only: Redis's functions, which are C's, do not.
function base.rawset(...)
  local t, k, v = ...
  if behind[t] then error(READONLY, 0) end
  if type(t) == 'table' and select('#', ...) > 2 then return rawset(t, k, v) end
  return told('rawset', pcall(rawset, ...))
end

function base.rawget(...)
  local t, k = ...
  t = behind[t] or t
  if type(t) == 'table' and select('#', ...) > 1 then return rawget(t, k) end
  return told('rawget', pcall(rawget, ...))
end

function base.setmetatable(...)
  if behind[(...)] then error(READONLY, 0) end
  return told('setmetatable', pcall(setmetatable, ...))
end

-- Checks that the first argument is a table; if not, that is an error of the caller's caller.
local function is_table(name, ...)
  if type((...)) ~= 'table' then wrong(2, 1, name, expected('table', 1, ...)) end
end

-- Checks that the nth argument is a function.
local function is_function(n, name, ...)
  if type((select(n, ...))) ~= 'function' then wrong(2, n, name, expected('function', n, ...)) end
end

-- A number in an optional place.
local function place(value, usual, n, name)
  if value == nil then return usual end
  local number = raw.tonumber(value)
  if not number then wrong(2, n, name, 'number expected, got ' .. type(value)) end
  return number
end

-- The number in the nth place.
local function number_of(n, name, ...)
  local value = select(n, ...)
  local number = type(value) == 'number' and value or raw.tonumber(value)
  if not number then wrong(2, n, name, expected('number', n, ...)) end
  return number
end

-- The string in the nth place; a number passes as one.
local function word(n, name, ...)
  local value = select(n, ...)
  if type(value) == 'string' then return value end
  if type(value) == 'number' then return tostring(value) end
  wrong(2, n, name, expected('string', n, ...))
end

function base.next(...)
  is_table('next', ...)
  local t, k = ...
  -- It may have passed many empty places.
  looks()
  local ok, key, value = pcall(next, behind[t] or t, k)
  if not ok then error(key, 0) end
  return key, value
end

function base.pairs(...)
  is_table('pairs', ...)
  local t = ...
  local content = behind[t]
  looks()
  if not content then return next, t, nil end
  local copy = {}
  for k, v in pairs(content) do copy[k] = v end
  return pairs(copy)
end

function base.ipairs(...)
  is_table('ipairs', ...)
  local t = ...
  return ipairs(t)
end

function base.unpack(...)
  is_table('unpack', ...)
  local t, i, j = ...
  i, j = place(i, 1, 2, 'unpack'), place(j, #t, 3, 'unpack')
  if i > j then return end
  -- Lua takes the numbers for 32 bits, whatever they are, and has so many places for arguments and results.
  local count = select('#', ...)
  if not (i >= -INTEGER_MAX and j <= INTEGER_MAX and j - i + 1 + count <= PLACES_MAX) then
    error('too many results to unpack', 2)
  end
  if count == 1 then return unpack(t) end
  if count == 2 then return unpack(t, i) end
  return unpack(t, i, j)
end

-- Chunks ------------------------------------------------------------------------------------------------------------

-- Most bytes of a chunk that a script compiles, and of one that is compiled in one step.
local CHUNK_BYTES_MAX, WHOLE_BYTES_MAX = 512 * 1024, constants.whole_bytes_max
-- Bytes that are compiled between two looks: a name takes up to 40 us where functions lie in one another 190 deep, each with
-- 200 variables.
local PIECE_BYTES = 256
-- Behind so many bytes pieces are shorter: each `or` of one expression walks through the jumps of all before it, of which there
-- may be one for 4 bytes. That is some 0.1 ms here, and 0.4 at the end of the longest text.
local NEAR_BYTES, FAR_PIECE_BYTES = 128 * 1024, 64

-- Compiles a text that `piece` gives, from one byte up to another; an empty piece ends it.
local function in_pieces(piece, name)
  local from = 1
  local made, err = load(function()
    looks()
    local to = from + (from > NEAR_BYTES and FAR_PIECE_BYTES or PIECE_BYTES) - 1
    local given = piece(from, to)
    from = to + 1
    return given
  end, name)
  if made or stops(err) or err == NO_MEMORY then return made, err end
  -- Lua's own errors of a text begin with the place. All others say that calls are too deep for one that gives a piece.
  if type(err) ~= 'string' or not raw.string.find(err, '^user_') then err = 'chunk has too many syntax levels' end
  return nil, err
end

local function compile(source)
  if byte(source, 1) == 27 then return nil, 'attempt to load chunk with wrong mode' end
  if #source > CHUNK_BYTES_MAX then return nil, 'chunk is too long' end
  local made, err
  if #source > WHOLE_BYTES_MAX then
    made, err = in_pieces(function(from, to) return sub(source, from, to) end, CHUNK)
    if not made and stops(err) then error(err, 0) end
  else
    made, err = loadstring(source, CHUNK)
  end
  looks()
  if made then return made end
  return nil, err
end

function base.loadstring(...)
  local source = word(1, 'loadstring', ...)
  return compile(source)
end

function base.load(...)
  is_function(1, 'load', ...)
  local read = ...
  local pieces, n, bytes = {}, 0, 0
  while true do
    local piece = read()
    bytes = bytes + (type(piece) == 'string' and #piece or 0)
    if bytes > CHUNK_BYTES_MAX then return nil, 'chunk is too long' end
    if piece == nil or piece == '' then return compile(concat(pieces)) end
    if type(piece) ~= 'string' then return nil, 'reader function must return a string' end
    n = n + 1
    pieces[n] = piece
  end
end

-- Collecting -----------------------------------------------------------------------------------------------------------

-- Steps of Lua's collector, of some microseconds each, between two looks.
local COLLECTED = 16
-- A value that only this table has, so that it goes when the collector has looked at all values since it was put here. Spare
-- values are kept, since there may be no room for a new one before something was collected, nor behind that.
local marks, spares = setmetatable({ false }, { __mode = 'v' }), { {}, {} }
marks[1] = nil

local function mark(n)
  marks[1] = spares[n] or rust.spare()
  spares[n] = false
end

local function spare()
  for n = 1, 2 do spares[n] = spares[n] or rust.spare() end
end

-- Called where `mark` was called, it has places enough to overwrite all of that call's own.
local function clear(_, _, _, _, _, _, _, _) end

-- Takes so many steps, or as many as it takes to look at all values; true if all were looked at.
local function collects(steps)
  local n = 0
  while n < steps and #marks > 0 do
    -- Lua takes a step where memory may have been taken, as when texts are joined; these take none.
    collectgarbage('restart')
    local _ = READONLY .. ''
    n = n + 1
    if n % COLLECTED == 0 then looks() end
  end
  return #marks == 0
end

-- Collects the state in small steps. Lua's own `collect` is one step, and so is one of its own steps where it owes many.
local function collect()
  rust.collecting()
  -- First what was under way, then all from the beginning.
  for n = 1, 2 do
    mark(n)
    clear()
    collects(raw.math.huge)
  end
  -- It owes none since what was under way ended, and gives back what has gone.
  repeat looks() until collectgarbage('step', 0)
  spare()
  rust.collected()
  return 0
end

-- Collects if so many bytes, which are about to be made in one step, find room only without what is out of use.
local function room(bytes)
  if rust.wants_room(bytes) then collect() end
end

-- True if what failed with this error is to be tried once more.
local function lacked(err)
  if err ~= NO_MEMORY then return false end
  collect()
  return true
end

-- The options. A script does not set the collector's pace: it is told Lua's own.
local COLLECTS = { collect = 0, count = 0, step = 0, stop = 0, restart = 0, setpause = 200, setstepmul = 200 }

function base.collectgarbage(...)
  local what, arg = ...
  if what == nil then what = 'collect' else what = word(1, 'collectgarbage', ...) end
  if not COLLECTS[what] then wrong(1, 1, 'collectgarbage', "invalid option '" .. what .. "'") end
  arg = place(arg, 0, 2, 'collectgarbage')
  if what == 'count' then return collectgarbage(what) end
  if what == 'collect' then return collect() end
  if what ~= 'step' then return COLLECTS[what] end
  if #marks == 0 then
    mark(1)
    clear()
  end
  -- One step, and one for each KiB that is asked for.
  local done = collects(1 + arg)
  if done then spare() end
  return done
end

-- Raises an error with the place. Calls of the sandbox in between count as they do for a script: as one call of a function that
-- has no lines.
function base.error(...)
  local message, level = ...
  local up = level == nil and 1 or raw.tonumber(level)
  if not up then return told('error', pcall(error, ...)) end
  if up < 2 then error(message, up >= 1 and 2 or 0) end
  if type(message) == 'string' or type(message) == 'number' then
    local line = rust.line_at(up)
    local where = line == 0 and '' or (line > 0 and 'user_script:' .. line or 'user_function:' .. -line) .. ': '
    message = where .. message
  end
  error(message, 0)
end

for _, name in ipairs({ 'assert', 'gcinfo', 'getmetatable', 'rawequal', 'select', 'tonumber', 'tostring',
  'type', '_VERSION' }) do
  base[name] = raw[name]
end

-- Libraries ---------------------------------------------------------------------------------------------------------

local function chosen(library, names)
  local content = {}
  for _, name in ipairs(names) do content[name] = library[name] end
  return content
end

-- An error about an argument, with the name of the function.
local function called(text, name)
  return (raw.string.gsub(text, '^bad argument #(%d+) %(', "bad argument #%1 to '" .. name .. "' ("))
end

-- Wraps a function of Rust with one result, or one with several, which come in a table.
local function one(f, name)
  return function(...)
    if select('#', ...) > ARGUMENTS_MAX then error('too many arguments', 2) end
    local ok, result = f(...)
    if not ok and lacked(result) then ok, result = f(...) end
    if not ok then error(called(result, name), 2) end
    return result
  end
end

local function several(too_many)
  return function(f, name)
    return function(...)
      if select('#', ...) > ARGUMENTS_MAX then error('too many arguments', 2) end
      local ok, results, count = f(...)
      if not ok and lacked(results) then ok, results, count = f(...) end
      if not ok then error(called(results, name), 2) end
      if count + 3 > PLACES_MAX then error('stack overflow (' .. too_many .. ')', 2) end
      return unpack(results, 1, count)
    end
  end
end

local function each(functions, wrap, content)
  for name, f in pairs(functions) do content[name] = wrap(f, name) end
  return content
end

local text = chosen(raw.string, { 'byte', 'char', 'len' })

-- Work on more bytes, or elements, than this is looked at.
local LONG = 4096

for _, name in ipairs({ 'lower', 'reverse', 'upper' }) do
  local make = raw.string[name]
  text[name] = function(...)
    local s = word(1, name, ...)
    local made = make(s)
    if #s > LONG then looks() end
    return made
  end
end

function text.sub(...)
  local s, i, j = ...
  if type(s) ~= 'string' then s = word(1, 'sub', ...) end
  if type(i) ~= 'number' then i = number_of(2, 'sub', ...) end
  local made = sub(s, i, j == nil and -1 or place(j, -1, 3, 'sub'))
  if #made > LONG then looks() end
  return made
end

function text.rep(...)
  local s, n = word(1, 'rep', ...), number_of(2, 'rep', ...)
  if s == '' then return s end
  -- Room for the pieces, the whole, and the buffer in which they are joined.
  if #s * n > LONG then room(3 * #s * n) end
  local made = rep(s, n)
  if #made > LONG then looks() end
  return made
end

local format = raw.string.format
function text.format(...)
  local made = told('format', pcall(format, ...))
  if #made > LONG then looks() end
  return made
end

function text.find(...)
  local s, pattern = word(1, 'find', ...), word(2, 'find', ...)
  local _, _, init, plain = ...
  init = place(init, 1, 3, 'find')
  local ok, from, to, captures, count = rust.find(s, pattern, init, plain)
  if not ok then error(from, 2) end
  if not from then return nil end
  if not captures then return from, to end
  return from, to, unpack(captures, 1, count)
end

function text.match(...)
  local s, pattern = word(1, 'match', ...), word(2, 'match', ...)
  local init = place(select(3, ...), 1, 3, 'match')
  local ok, from, _, captures, count = rust.scan(s, pattern, init, false)
  if not ok then error(from, 2) end
  if not from then return nil end
  return unpack(captures, 1, count)
end

function text.gmatch(...)
  local s, pattern = word(1, 'gmatch', ...), word(2, 'gmatch', ...)
  local at, last = 1, #s + 1
  return function()
    if at > last then return nil end
    local ok, from, to, captures, count = rust.scan(s, pattern, at, true)
    if not ok then error(from, 2) end
    if not from then
      at = last + 1
      return nil
    end
    at = to > from and to or to + 1
    return unpack(captures, 1, count)
  end
end
text.gfind = text.gmatch

-- The replacement of a match.
local function replaced(by, kind, whole, captures, count)
  local value
  if kind == 'function' then value = by(unpack(captures, 1, count)) else value = by[captures[1]] end
  if not value then return whole end
  if type(value) ~= 'string' and type(value) ~= 'number' then
    error('invalid replacement value (a ' .. type(value) .. ')', 3)
  end
  return value
end

function text.gsub(...)
  local s, pattern = word(1, 'gsub', ...), word(2, 'gsub', ...)
  local _, _, by, most = ...
  local kind = type(by)
  if kind ~= 'string' and kind ~= 'number' and kind ~= 'function' and kind ~= 'table' then
    wrong(1, 3, 'gsub', 'string/function/table expected')
  end
  most = place(most, nil, 4, 'gsub')
  if most then most = most - most % 1 end
  if kind == 'string' or kind == 'number' then
    local ok, result, count = rust.gsub(s, pattern, tostring(by), most)
    if not ok and lacked(result) then ok, result, count = rust.gsub(s, pattern, tostring(by), most) end
    if not ok then error(result, 2) end
    return result, count
  end
  local pieces, n, count, at, last = {}, 0, 0, 1, #s
  while most == nil or count < most do
    local ok, from, to, captures, of = rust.scan(s, pattern, at, false)
    if not ok then error(from, 2) end
    if not from then break end
    count = count + 1
    pieces[n + 1] = sub(s, at, from - 1)
    pieces[n + 2] = replaced(by, kind, sub(s, from, to - 1), captures, of)
    n = n + 2
    at = to
    if to == from then
      if from > last then break end
      n = n + 1
      pieces[n] = sub(s, from, from)
      at = from + 1
    end
    if byte(pattern, 1) == 94 then break end
  end
  n = n + 1
  pieces[n] = sub(s, at)
  return concat(pieces), count
end

local tables = chosen(raw.table, { 'getn', 'setn' })

-- Lua's own call one function of C after another, without a look between them.
function tables.foreach(...)
  is_table('foreach', ...)
  is_function(2, 'foreach', ...)
  local t, f = ...
  for key, value in next, t do
    local result = f(key, value)
    if result ~= nil then return result end
  end
end

function tables.foreachi(...)
  is_table('foreachi', ...)
  is_function(2, 'foreachi', ...)
  local t, f = ...
  for n = 1, #t do
    local result = f(n, rawget(t, n))
    if result ~= nil then return result end
  end
end

function tables.concat(...)
  local ok, made = pcall(concat, ...)
  if not ok and lacked(made) then ok, made = pcall(concat, ...) end
  made = told('concat', ok, made)
  if #made > LONG then looks() end
  return made
end

function tables.maxn(...)
  is_table('maxn', ...)
  looks()
  return raw.table.maxn((...))
end

-- Many elements are moved here, where the script can be looked at.
function tables.insert(...)
  local t, at, value = ...
  if behind[t] then error(READONLY, 0) end
  is_table('insert', ...)
  local count, last = select('#', ...), #t + 1
  if count == 2 then
    rawset(t, last, at)
    return
  end
  if count ~= 3 then error("wrong number of arguments to 'insert'", 2) end
  at = number_of(2, 'insert', ...)
  if at > last then
    rawset(t, at - at % 1, value)
    return
  end
  if last - at <= LONG then return insert(t, at, value) end
  at = at - at % 1
  for n = last, at + 1, -1 do rawset(t, n, rawget(t, n - 1)) end
  rawset(t, at, value)
end

function tables.remove(...)
  local t, at = ...
  if behind[t] then error(READONLY, 0) end
  is_table('remove', ...)
  local last = #t
  at = place(at, last, 2, 'remove')
  if at < 1 or at > last then return end
  if last - at <= LONG then return remove(t, at) end
  at = at - at % 1
  local value = rawget(t, at)
  for n = at, last - 1 do rawset(t, n, rawget(t, n + 1)) end
  rawset(t, last, nil)
  return value
end

-- For some orders of elements Lua's own sort takes the square of their number, within one step. So more than these are sorted
-- here, where the script can be looked at. The comparisons are Lua's: equal elements end in the same order, and the same element
-- shows that a function is no order.
local SORTED_MAX = 512
local NO_ORDER = 'invalid order function for sorting'

local function is_less(a, b) return a < b end

local function order(t, low, high, less)
  while low < high do
    -- Puts the first, the last and the middle one in order. All others are compared with the middle one.
    local first, last = rawget(t, low), rawget(t, high)
    if less(last, first) then
      rawset(t, low, last)
      rawset(t, high, first)
    end
    if high - low == 1 then return end
    local at = (low + high - (low + high) % 2) / 2
    local middle = rawget(t, at)
    first = rawget(t, low)
    if less(middle, first) then
      rawset(t, at, first)
      rawset(t, low, middle)
    else
      last = rawget(t, high)
      if less(last, middle) then
        rawset(t, at, last)
        rawset(t, high, middle)
      end
    end
    if high - low == 2 then return end
    middle = rawget(t, at)
    rawset(t, at, rawget(t, high - 1))
    rawset(t, high - 1, middle)
    local i, j = low, high - 1
    while true do
      i = i + 1
      local right = rawget(t, i)
      while less(right, middle) do
        if i > high then error(NO_ORDER, 0) end
        i = i + 1
        right = rawget(t, i)
      end
      j = j - 1
      local left = rawget(t, j)
      while less(middle, left) do
        if j < low then error(NO_ORDER, 0) end
        j = j - 1
        left = rawget(t, j)
      end
      if j < i then break end
      rawset(t, i, left)
      rawset(t, j, right)
    end
    last = rawget(t, high - 1)
    rawset(t, high - 1, rawget(t, i))
    rawset(t, i, last)
    -- The shorter part is sorted in a call, so that calls are no deeper than the binary digits of the length.
    if i - low < high - i then
      order(t, low, i - 1, less)
      low = i + 1
    else
      order(t, i + 1, high, less)
      high = i - 1
    end
  end
end

function tables.sort(...)
  local t, less = ...
  if behind[t] then error(READONLY, 0) end
  is_table('sort', ...)
  if less ~= nil then is_function(2, 'sort', ...) end
  local count, ok, err = #t, nil, nil
  if count <= SORTED_MAX then ok, err = pcall(sort, t, less) else
    ok, err = pcall(order, t, 1, count, less or is_less)
  end
  if ok then return end
  if err == NO_ORDER then error(err, 2) end
  if type(err) == 'string' then
    local from, to = raw.string.find(err, '^sandbox:%d+: ')
    if from then err = sub(err, to + 1) end
  end
  error(err, 0)
end

local math = {}
for name, value in pairs(raw.math) do math[name] = value end

-- A number without its fraction.
local function whole(number) return number - number % 1 end

function math.random(...)
  local count = select('#', ...)
  local drawn, low, high = rust.random(), 1, nil
  if count == 0 then return drawn end
  if count > 2 then error('wrong number of arguments', 2) end
  high = whole(number_of(1, 'random', ...))
  if count == 2 then low, high = high, whole(number_of(2, 'random', ...)) end
  if low > high then error('bad argument #' .. count .. " to 'random' (interval is empty)", 2) end
  return raw.math.floor(drawn * (high - low + 1)) + low
end

function math.randomseed(...) rust.seed(whole(number_of(1, 'randomseed', ...))) end

local threads = chosen(raw.coroutine, { 'create', 'running', 'status', 'wrap', 'yield' })

function threads.resume(...)
  if type((...)) ~= 'thread' then wrong(1, 1, 'resume', 'coroutine expected') end
  return ended(resume(...))
end

-- Settings of an instance of cjson. The usual instance has them for a run; those that a script makes have their own.
local function settings()
  return { usual = true, converts = false, ratio = 2, safe = 10, encode_depth = 1000, decode_depth = 1000, precision = 14,
    keeps = true, invalid = 0, reads_invalid = true }
end

-- A whole number, or what it was if none is given.
local function whole_of(given, was, n, name, low, high)
  if given == nil then return was end
  local number = raw.tonumber(given)
  if not number or number < low or number > high then
    error('bad argument #' .. n .. " to '" .. name .. "' (expected integer between " .. low .. ' and ' .. high .. ')', 3)
  end
  return number - number % 1
end

local function truth_of(given, was, n, name)
  if given == nil then return was end
  if type(given) == 'boolean' then return given end
  if given == 'on' or given == 'off' then return given == 'on' end
  error('bad argument #' .. n .. " to '" .. name .. "' (invalid option '" .. tostring(given) .. "')", 3)
end

local function json_of(set)
  local made = {}
  local encode, decode = rust.json.encode, rust.json.decode

  local function encoded(value)
    if set.usual then return encode(value) end
    return encode(value, set.converts, set.ratio, set.safe, set.encode_depth, set.precision, set.invalid)
  end

  local function decoded(value)
    if set.usual then return decode(value) end
    return decode(value, set.decode_depth, set.reads_invalid)
  end

  function made.encode(...)
    if select('#', ...) ~= 1 then error("bad argument #1 to 'encode' (expected 1 argument)", 2) end
    local ok, result = encoded((...))
    if not ok and lacked(result) then ok, result = encoded((...)) end
    if not ok then error(called(result, 'encode'), 2) end
    return result
  end

  function made.decode(...)
    if select('#', ...) ~= 1 then error("bad argument #1 to 'decode' (expected 1 argument)", 2) end
    local ok, result = decoded((...))
    if not ok and lacked(result) then ok, result = decoded((...)) end
    if not ok then error(called(result, 'decode'), 2) end
    return result
  end

  local function few(count, most, name)
    if count > most then error('bad argument #' .. (most + 1) .. " to '" .. name .. "' (found too many arguments)", 3) end
    set.usual = false
  end

  function made.encode_sparse_array(...)
    local name, converts, ratio, safe = 'encode_sparse_array', ...
    few(select('#', ...), 3, name)
    set.converts = truth_of(converts, set.converts, 1, name)
    set.ratio = whole_of(ratio, set.ratio, 2, name, 0, INTEGER_MAX)
    set.safe = whole_of(safe, set.safe, 3, name, 0, INTEGER_MAX)
    return set.converts, set.ratio, set.safe
  end

  local function number(name, field, high)
    made[name] = function(...)
      few(select('#', ...), 1, name)
      set[field] = whole_of((...), set[field], 1, name, 1, high)
      return set[field]
    end
  end
  number('encode_max_depth', 'encode_depth', INTEGER_MAX)
  number('decode_max_depth', 'decode_depth', INTEGER_MAX)
  number('encode_number_precision', 'precision', 14)

  local function truth(name, field)
    made[name] = function(...)
      few(select('#', ...), 1, name)
      set[field] = truth_of((...), set[field], 1, name)
      return set[field]
    end
  end
  truth('encode_keep_buffer', 'keeps')
  truth('decode_invalid_numbers', 'reads_invalid')

  function made.encode_invalid_numbers(...)
    local name, given = 'encode_invalid_numbers', ...
    few(select('#', ...), 1, name)
    if given == 'null' then set.invalid = 2 elseif given ~= nil then
      set.invalid = truth_of(given, false, 1, name) and 1 or 0
    end
    if set.invalid == 2 then return 'null' end
    return set.invalid == 1
  end

  made.null, made._NAME, made._VERSION = constants.null, 'cjson', '2.1.0'
  return made
end

local json_settings = settings()
local json = json_of(json_settings)
function json.new() return json_of(settings()) end

local msgpack = each(rust.msgpack.one, one, each(rust.msgpack.several,
  several('too many return values at once; use unpack_one or unpack_limit instead.'), {}))
msgpack._NAME, msgpack._VERSION = 'cmsgpack', 'lua-cmsgpack 0.4.0'
msgpack._COPYRIGHT, msgpack._DESCRIPTION =
  'Copyright (C) 2012, Salvatore Sanfilippo', 'MessagePack C implementation for Lua'

-- The server --------------------------------------------------------------------------------------------------------

-- Asks the server around the script; set for the time of a run.
local host

local function failed(message) return { err = 'ERR ' .. message } end

local CALL, PCALL, MAY, RESP, LOG, TAKE, WORDS = 1, 2, 3, 4, 5, 6, 7
-- Added to one of these where the arguments come as their count and a table, since Rust has no places for so many.
local MANY = 10

-- What answers a library while it is loaded, which may log and register functions, and ask for nothing else.
local loads

-- Results of what the server has answered.
local function answered(ok, result)
  if ok then return result end
  if result == nil then error(STOP, 0) end
  -- The reply is there, and waits for room.
  if result == true then
    collect()
    return answered(host(TAKE))
  end
  error(result, 0)
end

-- Checks that a script is at work, which alone asks the server, and that Rust has places for its arguments.
local function check(name, count)
  if not host then error(failed('redis.' .. name .. ' can only be called inside a script invocation'), 0) end
  if count > ARGUMENTS_MAX then error(failed('too many arguments'), 0) end
end

local function ask(name, what, ...)
  check(name, select('#', ...))
  return answered(host(what, ...))
end

local redis = {}

-- As `ask`, in one call less: this is what scripts do most.
local function asks(what)
  return function(...)
    local count = select('#', ...)
    if not host then check('call/pcall', 0) end
    if count > ARGUMENTS_MAX then
      if count > PLACES_MAX then error(failed('too many arguments'), 0) end
      return answered(host(MANY + what, count, { ... }))
    end
    local ok, result = host(what, ...)
    if ok then return result end
    return answered(ok, result)
  end
end
redis.call, redis.pcall = asks(CALL), asks(PCALL)

function redis.acl_check_cmd(...) return (ask('acl_check_cmd', MAY, ...)) end

function redis.setresp(...)
  if select('#', ...) ~= 1 then error(failed('redis.setresp() requires one argument.'), 0) end
  local version = raw.tonumber((...))
  version = version and version - version % 1
  if version ~= 2 and version ~= 3 then error(failed('RESP version must be 2 or 3.'), 0) end
  ask('setresp', RESP, version)
end

function redis.log(level, ...)
  if select('#', ...) < 1 then error(failed('redis.log() requires two arguments or more.'), 0) end
  level = raw.tonumber(level)
  if not level then error(failed('First argument must be a number (log level).'), 0) end
  if level < 0 or level > 3 then error(failed('Invalid log level.'), 0) end
  local words, n = {}, 0
  for i = 1, select('#', ...) do
    local value = select(i, ...)
    if type(value) == 'string' or type(value) == 'number' then
      n = n + 1
      words[n] = value
    end
  end
  local line = concat(words, ' ')
  if loads then answered(loads(LOG, level, line)) else ask('log', LOG, level, line) end
end

local function reply(field, make)
  return function(...)
    local value = ...
    if select('#', ...) ~= 1 or type(value) ~= 'string' then return failed('wrong number or type of arguments') end
    return { [field] = make(value) }
  end
end

redis.status_reply = reply('ok', function(value) return value end)
-- A text without line ends at its beginning and its end.
local function trimmed(text)
  local from, to = 1, #text
  local is_end = function(at) return byte(text, at) == 10 or byte(text, at) == 13 end
  while from <= to and is_end(from) do from = from + 1 end
  while from <= to and is_end(to) do to = to - 1 end
  return sub(text, from, to)
end

-- An error's code, and the text behind it.
redis.error_reply = reply('err', function(value)
  local found, zero = rust.find(value, '\0', 1, true)
  if not found then error(zero, 0) end
  if zero then value = sub(value, 1, zero - 1) end
  if byte(value, 1) == 45 then value = sub(value, 2) end
  local ok, from = rust.find(value, ' ', 1, true)
  if not (ok and from) then return 'ERR ' .. trimmed(value) end
  return sub(value, 1, from) .. trimmed(sub(value, from + 1))
end)

function redis.sha1hex(...)
  local value = ...
  if select('#', ...) ~= 1 then error(failed('wrong number of arguments'), 0) end
  if type(value) == 'number' then value = tostring(value) end
  if type(value) ~= 'string' then value = '' end
  local ok, digest = rust.sha1hex(value)
  if not ok then error(digest, 0) end
  return digest
end

function redis.set_repl(...)
  if select('#', ...) ~= 1 then error(failed('redis.set_repl() requires one argument.'), 0) end
  local flags = raw.tonumber((...)) or 0
  if flags < 0 or flags > 3 then
    error(failed('Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.'), 0)
  end
end

-- What a library registers while it is loaded: name, function, description, flags.
local registered
local FLAGS = {}
for _, name in ipairs({ 'no-writes', 'allow-oom', 'allow-stale', 'no-cluster', 'allow-cross-slot-keys' }) do
  FLAGS[name] = true
end

local function refused(message) error(failed(message), 0) end

local function flags_of(given)
  if type(given) ~= 'table' then
    refused('flags argument to redis.register_function must be a table representing function flags')
  end
  local flags, has = {}, {}
  for _, flag in ipairs(given) do
    if not FLAGS[flag] then refused('unknown flag given') end
    -- A flag that is given twice counts once.
    if not has[flag] then flags[#flags + 1] = flag end
    has[flag] = true
  end
  return flags
end

-- A text; a number passes as one, and nothing else does.
local function text_of(value)
  if type(value) == 'number' then return tostring(value) end
  return type(value) == 'string' and value
end

-- Reads the named arguments of a registration.
local function named(given)
  local made = { flags = {} }
  for key, value in next, given do
    if type(key) ~= 'string' and type(key) ~= 'number' then
      refused('named argument key given to redis.register_function is not a string')
    elseif key == 'function_name' then
      made.name = text_of(value) or refused('function_name argument given to redis.register_function must be a string')
    elseif key == 'description' then
      made.description = text_of(value)
        or refused('description argument given to redis.register_function must be a string')
    elseif key == 'callback' then
      if type(value) ~= 'function' then
        refused('callback argument given to redis.register_function must be a function')
      end
      made.callback = value
    elseif key == 'flags' then
      made.flags = flags_of(value)
    else
      refused('unknown argument given to redis.register_function')
    end
  end
  if not made.name then refused('redis.register_function must get a function name argument') end
  if not made.callback then refused('redis.register_function must get a callback argument') end
  return made
end

local function register_function(...)
  -- A library may have kept this function from when it was loaded.
  if not registered then refused('redis.register_function can only be called on FUNCTION LOAD command') end
  local count, name, callback, made = select('#', ...), ...
  if count == 1 then
    if type(name) ~= 'table' then
      refused('calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).')
    end
    made = named(name)
  elseif count == 2 then
    name = text_of(name) or refused('first argument to redis.register_function must be a string')
    if type(callback) ~= 'function' then
      refused('second argument to redis.register_function must be a function')
    end
    made = { name = name, callback = callback, flags = {} }
  else
    refused('wrong number of arguments to redis.register_function')
  end
  if #registered >= FUNCTIONS_MAX then refused('too many functions in one library') end
  if made.name == '' or raw.string.find(made.name, '[^%w_]') then
    refused('Library names can only contain letters, numbers, or underscores(_) and must be at least one character long')
  end
  for _, other in ipairs(registered) do
    if other.name == made.name then refused('Function already exists in the library') end
  end
  registered[#registered + 1] = made
end

function redis.replicate_commands() return true end
function redis.breakpoint() return false end
function redis.debug() end

redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING = 0, 1, 2, 3
redis.REPL_NONE, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_ALL = 0, 1, 2, 2, 3
redis.REDIS_VERSION, redis.REDIS_VERSION_NUM = constants.version, constants.version_number

-- All of it ---------------------------------------------------------------------------------------------------------

base.string, base.table, base.math, base.coroutine = seal(text), seal(tables), seal(math), seal(threads)
base.cjson, base.cmsgpack = seal(json), seal(msgpack)
base.bit = seal(each(rust.bit, one, {}))
base.struct = seal(each(rust.struct.one, one, each(rust.struct.several, several('too many results'), {})))
base.os = seal({ clock = rust.clock })
base.redis = seal(redis)
base.server = base.redis
base._G = shown

local nothing_else = { __index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end }
setmetatable(base, nothing_else)

-- What a library sees while it is loaded: what it takes to register functions and to log.
local library = { register_function = register_function }
for _, name in ipairs({
  'log', 'LOG_DEBUG', 'LOG_VERBOSE', 'LOG_NOTICE', 'LOG_WARNING', 'REDIS_VERSION', 'REDIS_VERSION_NUM',
}) do
  library[name] = redis[name]
end
library = seal(setmetatable(library, nothing_else))
local loading = setmetatable({ redis = library, server = library }, nothing_else)

-- What is behind the globals: all of it, or `loading` while a library is loaded.
local globals = { __index = base, __newindex = refuse, __metatable = false }
behind[shown] = base
setmetatable(shown, globals)

-- A string's methods are the functions of `text`, and its metatable is no way to change them.
local strings = getmetatable('')
strings.__index = text
strings.__metatable = seal({ __index = base.string })

local SCRIPT, FUNCTION, LIBRARY, TEXT = 1, 2, 3, 4

local explain = rust.explain

local function unload()
  globals.__index, loads = base, nil
end

-- Compiles the text that Rust has. Returns the code, or what is wrong.
local function compiled(name)
  if byte(rust.piece(1, 1), 1) == 27 then return false, 'attempt to load chunk with wrong mode' end
  local made, err = in_pieces(rust.piece, name)
  if made then return true, made end
  return false, err
end

-- Runs a script, which finds what it is given in KEYS and ARGV, a function of a library, which is given it, a library, which
-- registers functions, or compiles a text. `server` answers what it asks. Without keys the run first collects what others have
-- left, and then asks for them.
local function run(script, server, keys, argv, kind)
  local ok, result
  -- The last run leaves this, if it was ended before it could put it back itself.
  if loads then unload() end
  host, registered = nil, nil
  if not json_settings.usual then
    for name, value in pairs(settings()) do json_settings[name] = value end
  end
  if not keys then
    base.KEYS, base.ARGV = nil, nil
    collect()
    ok, result = server(WORDS)
    if not ok then return false, NO_MEMORY end
    keys, argv = result[1], result[2]
    result = nil
  end
  if kind == SCRIPT then
    host, base.KEYS, base.ARGV = server, keys, argv
    ok, result = xpcall(script, explain)
  elseif kind == FUNCTION then
    host, base.KEYS, base.ARGV = server, nil, nil
    ok, result = xpcall(function() return (script(keys, argv)) end, explain)
  elseif kind == LIBRARY then
    loads, registered, base.KEYS, base.ARGV = server, {}, nil, nil
    globals.__index = loading
    ok, result = xpcall(script, explain)
    if ok then result = registered end
    unload()
  else
    ok, result = compiled(kind == TEXT and CHUNK or LIBRARY_CHUNK)
  end
  host, registered = nil, nil
  return ok, result
end

return run, shown, collect
