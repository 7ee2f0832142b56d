-- The part that is the same for every layout: fields of a frame, frames of a connection.

local bit = bit or bit32
local SHORT, BAD = "short", "bad"
local tcp_stream = Field.new("tcp.stream")

local crc_table
local function crc32(range)
  if crc_table == nil then
    crc_table = {}
    for index = 0, 255 do
      local value = index
      for _ = 1, 8 do
        local odd = bit.band(value, 1) == 1
        value = bit.rshift(value, 1)
        if odd then value = bit.bxor(value, 0xEDB88320) end
      end
      crc_table[index] = value
    end
  end
  local value, data = 0xFFFFFFFF, range:bytes()
  for index = 0, data:len() - 1 do
    local place = bit.band(bit.bxor(value, data:get_index(index)), 0xFF)
    value = bit.bxor(bit.rshift(value, 8), crc_table[place])
  end
  return bit.bxor(value, 0xFFFFFFFF) % 0x100000000
end

local function number(range, order)
  local little = order == "little"
  if range:len() == 8 then
    return (little and range:le_uint64() or range:uint64()):tonumber()
  end
  return little and range:le_uint() or range:uint()
end

-- MessagePack as text, for a look at headers and payloads. Returns the text and the next position, or nil.
local packed_text
local function packed_items(data, at, count, pairwise, depth)
  local found = {}
  for _ = 1, count do
    local text
    text, at = packed_text(data, at, depth + 1)
    if text == nil then return nil end
    if pairwise then
      local value
      value, at = packed_text(data, at, depth + 1)
      if value == nil then return nil end
      text = text .. ": " .. value
    end
    found[#found + 1] = text
  end
  local open, close = "[", "]"
  if pairwise then open, close = "{", "}" end
  return open .. table.concat(found, ", ") .. close, at
end

local function packed_bytes(data, at, size, quoted)
  if at + size > data:len() then return nil end
  if size == 0 then return quoted and '""' or "(empty)", at end
  local range = data(at, size)
  if quoted then return '"' .. range:string(ENC_UTF_8) .. '"', at + size end
  return range:bytes():tohex(), at + size
end

packed_text = function(data, at, depth)
  if depth > 64 or at >= data:len() then return nil end
  local first = data(at, 1):uint()
  at = at + 1
  if first < 0x80 then return tostring(first), at end
  if first < 0x90 then return packed_items(data, at, first - 0x80, true, depth) end
  if first < 0xA0 then return packed_items(data, at, first - 0x90, false, depth) end
  if first < 0xC0 then return packed_bytes(data, at, first - 0xA0, true) end
  if first >= 0xE0 then return tostring(first - 0x100), at end
  if first == 0xC0 then return "null", at end
  if first == 0xC2 then return "false", at end
  if first == 0xC3 then return "true", at end
  local sizes = {
    [0xC4] = 1, [0xC5] = 2, [0xC6] = 4, [0xCA] = 4, [0xCB] = 8, [0xCC] = 1, [0xCD] = 2, [0xCE] = 4,
    [0xCF] = 8, [0xD0] = 1, [0xD1] = 2, [0xD2] = 4, [0xD3] = 8, [0xD9] = 1, [0xDA] = 2, [0xDB] = 4,
    [0xDC] = 2, [0xDD] = 4, [0xDE] = 2, [0xDF] = 4,
  }
  local size = sizes[first]
  if size == nil or at + size > data:len() then return nil end
  local range = data(at, size)
  at = at + size
  if first == 0xCA or first == 0xCB then return tostring(range:float()), at end
  if first >= 0xD0 and first <= 0xD3 then
    return tostring(size == 8 and range:int64() or range:int()), at
  end
  if first >= 0xCC and first <= 0xCF then
    return tostring(size == 8 and range:uint64() or range:uint()), at
  end
  local count = range:uint()
  if first <= 0xC6 then return packed_bytes(data, at, count, false) end
  if first <= 0xDB then return packed_bytes(data, at, count, true) end
  return packed_items(data, at, count, first >= 0xDE, depth)
end

-- A walk over a layout. Without a tree it only finds the end of the frame, or SHORT, or BAD.
local function new_walk(protocol, data, start, order, tree)
  return {
    protocol = protocol, data = data, start = start, at = start, limit = data:len(),
    order = order, tree = tree, numbers = {}, inside = false,
  }
end

local function blame(walk, item, text)
  item:add_proto_expert_info(walk.protocol.fault, text)
end

local function show(walk, part, size)
  local range = walk.data(walk.at, size)
  if size == 0 then return walk.tree:add(part.field, walk.data(walk.at, 0)) end
  if walk.order == "little" then return walk.tree:add_le(part.field, range) end
  return walk.tree:add(part.field, range)
end

-- Returns whether `size` bytes are there; if not, `walk.fault` says why the walk ends.
local function room(walk, size)
  if walk.at + size <= walk.limit then return true end
  walk.fault = walk.inside and BAD or SHORT
  if walk.tree and walk.limit > walk.at then
    blame(walk, walk.tree, size .. " bytes are due, " .. (walk.limit - walk.at) .. " are left")
  end
  return false
end

local walk_parts

local function walk_number(walk, part)
  if not room(walk, part.size) then return end
  local value = number(walk.data(walk.at, part.size), walk.order)
  walk.numbers[part.name] = value
  local wrong
  if part.known and part.known[value] == nil then wrong = "no such value" end
  if part.maximum and value > part.maximum then wrong = "above the limit of " .. part.maximum end
  if walk.tree then
    local item = show(walk, part, part.size)
    if part.sum then
      local computed = crc32(walk.data(walk.start, walk.at - walk.start))
      if computed ~= value then wrong = string.format("computed 0x%08x", computed) end
    end
    if wrong then blame(walk, item, wrong) end
  elseif wrong then
    walk.fault = BAD
    return
  end
  walk.at = walk.at + part.size
end

local function walk_data(walk, part)
  local size = part.length
  if size == nil then size = walk.limit - walk.at end
  if type(size) == "string" then size = walk.numbers[size] end
  if not room(walk, size) then return end
  if walk.tree then
    local item = show(walk, part, size)
    if part.packed and size > 0 then
      local text = packed_text(walk.data(walk.at, size):tvb(), 0, 0)
      if text then item:append_text(" = " .. text) end
    end
  end
  walk.at = walk.at + size
end

local function walk_window(walk, part)
  local size = walk.numbers[part.length]
  if not room(walk, size) then return end
  local outer, inside, last = walk.limit, walk.inside, walk.at + size
  if walk.tree then
    walk.limit, walk.inside = last, true
    walk_parts(walk, part.parts)
    if walk.at < last then
      blame(walk, walk.tree, (last - walk.at) .. " bytes are left over")
    end
    walk.limit, walk.inside, walk.fault = outer, inside, nil
  end
  walk.at = last
end

walk_parts = function(walk, parts)
  for _, part in ipairs(parts) do
    if part.kind == "number" then
      walk_number(walk, part)
    elseif part.kind == "data" then
      walk_data(walk, part)
    elseif part.kind == "repeat" then
      for _ = 1, walk.numbers[part.times] do
        walk_parts(walk, part.parts)
        if walk.fault then return end
      end
    elseif part.kind == "choice" then
      walk_parts(walk, part.cases[walk.numbers[part.on]] or part.other)
    else
      walk_window(walk, part)
    end
    if walk.fault then return end
  end
end

-- Returns where the frame ends, and its numbers; or SHORT or BAD.
local function measure(protocol, layout, data, start, order)
  local walk = new_walk(protocol, data, start, order, nil)
  walk_parts(walk, layout.parts)
  return walk.fault or walk.at, walk.numbers
end

-- Connections: what is known of each, by its number. A frame that was seen once keeps its layout.
local connections = {}

local function byte(data, at)
  return at < data:len() and data(at, 1):uint() or nil
end

local function u32(data, at, order)
  if at + 4 > data:len() then return nil end
  return number(data(at, 4), order)
end

-- Rheos v2 has the lengths of name and data in its body, v1 only those that follow each other.
local function rheos_version(data, at)
  local body = u32(data, at + 1, "little")
  if body == nil then return SHORT end
  if body < 6 then return "rheos1" end
  if at + 28 > data:len() then return SHORT end
  local name, size = number(data(at + 22, 2), "little"), number(data(at + 24, 4), "little")
  return 6 + name + size == body and "rheos2" or "rheos1"
end

local function lamamq_order(data, at)
  for _, order in ipairs({ "big", "little" }) do
    local size = u32(data, at + 1, order)
    if size == nil then return SHORT end
    if size > 0 and size <= LAMAMQ_NAME_BYTES_MAX then return order end
  end
  return "big"
end

-- Returns protocol and byte order of a connection that starts with these bytes; nil if unknown, SHORT if
-- there are too few.
local function detect(data, at)
  local first, second = byte(data, at), byte(data, at + 1)
  if second == nil then return SHORT end
  if first == 0xFE and second == 0xCA then return "herald", "little" end
  if first == 0xCA and second == 0xFE then return "herald", "big" end
  if first == 0x01 then return "fleximq", "big" end
  if first == 0xFA then return rheos_version(data, at), "little" end
  if first == 0x00 then
    local order = lamamq_order(data, at)
    return order == SHORT and SHORT or "lamamq", order
  end
  return nil
end

local function offered(major, minor)
  local version = major * 256 + minor
  return version >= LAMAMQ_VERSION_MIN and version <= LAMAMQ_VERSION_MAX
end

-- Each returns the layout of the frame at a position; `side` is the state of its direction.
local choose = {}

function choose.herald() return LAYOUTS.herald.FRAME end
function choose.fleximq() return LAYOUTS.fleximq.MESSAGE end

function choose.rheos1(_, _, data, at)
  local first = byte(data, at)
  if first == 0xFA then return LAYOUTS.rheos1.REQUEST_1 end
  if first == 0xAC then return LAYOUTS.rheos1.ACKNOWLEDGMENT_1 end
  return LAYOUTS.rheos1.RESPONSE_1
end

function choose.rheos2(_, _, data, at)
  if byte(data, at) == 0xFA then return LAYOUTS.rheos2.EVENT_2 end
  return LAYOUTS.rheos2.ACKNOWLEDGMENT_2
end

function choose.lamamq(connection, side, data, at)
  local layouts = LAYOUTS.lamamq
  local left = data:len() - at
  if side.from_client and side.frames == 0 then
    local name = u32(data, at + 1, connection.order)
    local after = name and at + 5 + name
    if after == nil or left <= 5 + name then return layouts.AUTHENTICATION end
    local major, minor = byte(data, after), byte(data, after + 1)
    if minor and offered(major, minor) then return layouts.AUTHENTICATION end
    return layouts.AUTHENTICATION_WITH_KEY
  end
  if side.from_client and side.frames == 1 then
    local major, minor = byte(data, at), byte(data, at + 1)
    if left == 2 or (minor and offered(major, minor)) then return layouts.VERSION_CHOICE end
    return layouts.KEY_AND_CHOICE
  end
  local identifier = u32(data, at, connection.order)
  if side.from_client then
    local answers = connection.hooks and identifier and identifier >= LAMAMQ_BROKER_ID_BIT
    return answers and layouts.ANSWER or layouts.MESSAGE
  end
  if side.frames == 0 and byte(data, at) ~= 0 then return layouts.VERSION_OFFER end
  if identifier and (identifier == 0 or connection.awaited[identifier]) then return layouts.ANSWER end
  return byte(data, at + 4) == 1 and layouts.MESSAGE or layouts.ANSWER
end

local function lamamq_passed(connection, side, layout, numbers)
  local layouts = LAYOUTS.lamamq
  if side.from_client and layout == layouts.MESSAGE then
    connection.awaited[numbers["Message id"]] = true
    if numbers["Message type"] == 64 then connection.hooks = true end
  elseif layout == layouts.ANSWER and not side.from_client then
    connection.awaited[numbers["message id"]] = nil
  end
end

local function new_connection(data, source)
  local label, order = detect(data, 0)
  if label == nil or label == SHORT then return nil, label end
  return {
    label = label, order = order, awaited = {}, hooks = false, client = source, seen = {},
    [true] = { from_client = true, frames = 0 }, [false] = { from_client = false, frames = 0 },
  }
end

-- Shows one frame; returns its end, SHORT or BAD.
local function dissect_frame(connection, data, at, pinfo, tree)
  local side = connection[pinfo.src_port == connection.client]
  local protocol = PROTOCOLS[connection.label]
  local key = pinfo.number .. ":" .. at
  local layout = connection.seen[key]
  local fresh = layout == nil
  if fresh then layout = choose[connection.label](connection, side, data, at) end
  local last, numbers = measure(protocol, layout, data, at, connection.order)
  if last == SHORT or last == BAD then return last end
  if fresh then
    connection.seen[key] = layout
    side.frames = side.frames + 1
    if connection.label == "lamamq" then lamamq_passed(connection, side, layout, numbers) end
  end
  local item = tree:add(protocol.proto, data(at, last - at))
  local name = layout.title
  if layout.names then name = layout.names[numbers[layout.on]] or name end
  item:append_text(", " .. name)
  pinfo.cols.info:append((tostring(pinfo.cols.info) == "" and "" or ", ") .. name)
  walk_parts(new_walk(protocol, data, at, connection.order, item), layout.parts)
  return last
end

local function dissect(connection, data, pinfo, tree)
  pinfo.cols.protocol = connection.label
  pinfo.cols.info = ""
  local at = 0
  while at < data:len() do
    local last = dissect_frame(connection, data, at, pinfo, tree)
    if last == SHORT then
      pinfo.desegment_offset = at
      pinfo.desegment_len = DESEGMENT_ONE_MORE_SEGMENT
      return data:len()
    end
    if last == BAD then
      local protocol = PROTOCOLS[connection.label]
      local item = tree:add(protocol.proto, data(at))
      item:add_proto_expert_info(protocol.fault, "no frame can be read here")
      return data:len()
    end
    at = last
  end
  return at
end

local penstock = Proto("penstock", "Penstock: one port, five protocols")

function penstock.dissector(data, pinfo, tree)
  local stream = tcp_stream()
  if stream == nil then -- a datagram: herald
    local connection = new_connection(data, pinfo.src_port)
    if connection == nil or connection.label ~= "herald" then return 0 end
    return dissect(connection, data, pinfo, tree)
  end
  local connection = connections[stream.value]
  if connection == nil then
    local short
    connection, short = new_connection(data, pinfo.src_port)
    if short then
      pinfo.desegment_offset = 0
      pinfo.desegment_len = DESEGMENT_ONE_MORE_SEGMENT
      return data:len()
    end
    if connection == nil then return 0 end
    connections[stream.value] = connection
  end
  return dissect(connection, data, pinfo, tree)
end

function penstock.init() connections = {} end

DissectorTable.get("tcp.port"):add(PORT, penstock)
DissectorTable.get("udp.port"):add(PORT, penstock)
