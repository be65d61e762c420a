-- Dissector of MRC for Wireshark and tshark, 3.6 or later. `make wireshark` installs it; docs/wireshark.md
-- lists its filter names.
--
-- It reads what follows UDP; Wireshark itself reads IPv6, IPv4, SRH and UDP. The other headers stand in
-- the tables below, which scripts/wireshark_fields.py writes from testbed/mrc/wire/headers.py.

-- declarations
local UDP_PORTS = { 4791, 4971 }
local ICRC_BYTES = 4
local EV_HALF = 0x10000
local TRIMMED_DSCPS = "26,28"
local LOCATOR_BLOCK = 0x5f000000
local USIDS = 6
local PLANE_UNIT = 512
local DT6_USID = 0xf006
local ROLES = { [1] = "T0", [2] = "T1", [3] = "NIC", [15] = "FUNCTION" }
local HEADERS = {
  { name = "BTH", title = "base transport header", words = {
    { bits = 8,
      { name = "mrc.bth.opcode", base = base.HEX, meaning = "which packet it is",
        values = { [0xc6] = "WRITE_FIRST", [0xc7] = "WRITE_MIDDLE", [0xc8] = "WRITE_LAST", [0xc9] = "WRITE_LAST_IMMEDIATE", [0xca] = "WRITE_ONLY", [0xcb] = "WRITE_ONLY_IMMEDIATE", [0xd1] = "ACK", [0xd8] = "ENDPOINT_REQUEST", [0xd9] = "ENDPOINT_RESPONSE", [0xdc] = "SACK", [0xdd] = "NACK", [0xde] = "RELIABILITY_PROBE" } },
    },
    { bits = 8,
      { name = "mrc.bth.pad", mask = 0x30, base = base.DEC, meaning = "bytes of zeros behind the payload", },
      { name = "mrc.bth.version", mask = 0xf, base = base.DEC, meaning = "0; others are refused", },
    },
    { bits = 16,
      { name = "mrc.bth.pkey", base = base.HEX, meaning = "FFFF; ignored", },
    },
    { bits = 32,
      { name = "mrc.bth.dqp", mask = 0xffffff, base = base.HEX, meaning = "QPN at the receiver; 2 is the endpoint itself", },
    },
    { bits = 32,
      { name = "mrc.bth.ack_request", mask = 0x80000000, base = base.DEC, meaning = "AckReq: asks for a SACK and an ACK", },
      { name = "mrc.bth.rtx", mask = 0x20000000, base = base.DEC, meaning = "a retransmission; a SACK echoes it", },
      { name = "mrc.bth.ts", mask = 0x10000000, base = base.DEC, meaning = "a TSETH follows the METH", },
      { name = "mrc.bth.psn", mask = 0xffffff, base = base.DEC, meaning = "see the table of packets", },
    },
  } },
  { name = "METH", title = "message header of a WRITE", words = {
    { bits = 16,
      { name = "mrc.write.rqmsn", base = base.DEC, meaning = "counts WRITEs with immediate, from 0; the same on every packet; else 0", },
    },
    { bits = 16,
      { name = "mrc.write.msn", base = base.DEC, meaning = "counts messages, from 0; the same on every packet of one", },
    },
  } },
  { name = "TSETH", title = "timestamp, where BTH.ts is set", words = {
    { bits = 16,
      { name = "mrc.write.tx_timestamp", base = base.DEC, meaning = "when the packet was sent, in the unit that tsr says", },
    },
    { bits = 16,
      { name = "mrc.write.tsr", mask = 0x8000, base = base.DEC, meaning = "unit: 0 is 128 ns, 1 is the sender's own",
        values = { [0x0] = "128 ns", [0x1] = "sender's own" } },
      { name = "mrc.write.ftype", mask = 0xf, base = base.DEC, meaning = "1: the timestamp is one",
        values = { [0x1] = "timestamp" } },
    },
  } },
  { name = "RETH", title = "RDMA header of a WRITE", words = {
    { bits = 64,
      { name = "mrc.write.va", base = base.HEX, meaning = "address of this packet's payload", },
    },
    { bits = 32,
      { name = "mrc.write.rkey", base = base.HEX, meaning = "key of the memory region", },
    },
    { bits = 32,
      { name = "mrc.write.dma_length", base = base.DEC, meaning = "bytes of the whole message, on every packet", },
    },
  } },
  { name = "ImmDt", title = "immediate data, with opcodes C9 and CB", words = {
    { bits = 32,
      { name = "mrc.write.immediate", base = base.HEX, meaning = "for the program at the receiver", },
    },
  } },
  { name = "AETH", title = "acknowledgement", words = {
    { bits = 32,
      { name = "mrc.ack.syndrome", mask = 0xff000000, base = base.HEX, meaning = "1F: ACK (any 00 to 1F is one); NAK: 61 invalid request, 62 remote access error, 63 remote operational error",
        values = { [0x1f] = "ACK", [0x61] = "NAK INVALID_REQUEST", [0x62] = "NAK REMOTE_ACCESS_ERROR", [0x63] = "NAK REMOTE_OPERATION_ERROR" } },
      { name = "mrc.ack.msn", mask = 0xffffff, base = base.DEC, meaning = "messages completed at the responder", },
    },
  } },
  { name = "SETH", title = "selective acknowledgement", words = {
    { bits = 16,
      { name = "mrc.sack.type", mask = 0xf000, base = base.DEC, meaning = "0; ignored (mirrors UET's)", },
      { name = "mrc.sack.next_header", mask = 0xf80, base = base.DEC, meaning = "0; ignored (mirrors UET's)", },
      { name = "mrc.sack.m", mask = 0x60, base = base.DEC, meaning = "mark on the EV: 0 none, 1 skip once, 2 always skip; 3 is read as 0",
        values = { [0x0] = "NONE", [0x1] = "SKIP_ONCE", [0x2] = "ALWAYS_SKIP" } },
      { name = "mrc.sack.pr", mask = 0x2, base = base.DEC, meaning = "1: answers a reliability probe", },
    },
    { bits = 16,
      { name = "mrc.sack.ack_psn_offset", base = base.DEC, signed = true, meaning = "PSN of the packet that is answered, from cack_psn; where pr is 1 the probe's id", },
    },
    { bits = 32,
      { name = "mrc.sack.ev", base = base.HEX, meaning = "EV of the packet that is answered", },
    },
    { bits = 16,
      { name = "mrc.sack.spdcid", base = base.HEX, meaning = "low 16 bits of the sender's QPN; ignored", },
    },
    { bits = 16,
      { name = "mrc.sack.dpdcid", base = base.HEX, meaning = "low 16 bits of the receiver's QPN; ignored", },
    },
    { bits = 32,
      { name = "mrc.sack.cack", mask = 0xffffff, base = base.DEC, meaning = "all PSNs up to it have arrived", },
    },
    { bits = 8,
      { name = "mrc.sack.cc_type", mask = 0xf0, base = base.DEC, meaning = "0: CC_STATE is as below; with others it is not read", },
      { name = "mrc.sack.cc_fl", mask = 0xf, base = base.DEC, meaning = "0; ignored", },
    },
    { bits = 8,
      { name = "mrc.sack.mpr", base = base.DEC, meaning = "responder window in units of 128 PSNs; 0, and ignored, unless both ends agreed", },
    },
    { bits = 16,
      { name = "mrc.sack.sack_offset", base = base.DEC, signed = true, meaning = "first PSN of the bitmap, from cack_psn", },
    },
    { bits = 64,
      { name = "mrc.sack.bitmap", base = base.HEX, meaning = "bit i, from the least significant: PSN cack_psn + sack_offset + i has arrived", },
    },
  } },
  { name = "CC_STATE", title = "congestion state, behind the SETH", words = {
    { bits = 16,
      { name = "mrc.sack.tx_timestamp", base = base.DEC, meaning = "of the packet that is answered; 0 if it had none", },
    },
    { bits = 16,
      { name = "mrc.sack.ooo_count", mask = 0x7fff, base = base.DEC, meaning = "packets received above cack_psn", },
    },
    { bits = 32,
      { name = "mrc.sack.restore_cwnd", mask = 0x80000000, base = base.DEC, meaning = "return to the window before the penalty", },
      { name = "mrc.sack.rcv_cwnd_pen", mask = 0x7f000000, base = base.DEC, meaning = "penalty of a busy receiver, 0 to 127", },
      { name = "mrc.sack.rcvd_bytes", mask = 0xffffff, base = base.DEC, meaning = "bytes of new, untrimmed data packets (UDP length + 40 each), in units of 256, rounded up, modulo 2^24", },
    },
  } },
  { name = "NETH", title = "negative acknowledgement", words = {
    { bits = 16,
      { name = "mrc.nack.type", mask = 0xf000, base = base.DEC, meaning = "0; ignored (mirrors UET's)", },
      { name = "mrc.nack.next_header", mask = 0xf80, base = base.DEC, meaning = "0; ignored (mirrors UET's)", },
    },
    { bits = 8,
      { name = "mrc.nack.reason", base = base.HEX, meaning = "01 TRIMMED, 02 TRIMMED_LASTHOP, 06 NO_BITMAP, 07 NO_PKT_BUFFER, 0A NO_RESOURCE, 0B PSN_OOR_WINDOW, 19 UNEXP_EVENT; others are refused",
        values = { [0x1] = "TRIMMED", [0x2] = "TRIMMED_LASTHOP", [0x6] = "NO_BITMAP", [0x7] = "NO_PKT_BUFFER", [0xa] = "NO_RESOURCE", [0xb] = "PSN_OOR_WINDOW", [0x19] = "UNEXP_EVENT" } },
    },
    { bits = 8,
      { name = "mrc.nack.vendor_info", base = base.HEX, meaning = "0; ignored", },
    },
    { bits = 32,
      { name = "mrc.nack.ev", base = base.HEX, meaning = "EV of the refused packet", },
    },
    { bits = 16,
      { name = "mrc.nack.spdcid", base = base.HEX, meaning = "low 16 bits of the sender's QPN; ignored", },
    },
    { bits = 16,
      { name = "mrc.nack.dpdcid", base = base.HEX, meaning = "low 16 bits of the receiver's QPN; ignored", },
    },
    { bits = 32,
      { name = "mrc.nack.psn", mask = 0xffffff, base = base.DEC, meaning = "PSN of the refused packet", },
    },
    { bits = 8,
      { name = "mrc.nack.cc_type", mask = 0xf0, base = base.DEC, meaning = "2; ignored", },
      { name = "mrc.nack.cc_fl", mask = 0xf, base = base.DEC, meaning = "0; ignored", },
    },
    { bits = 8 },
    { bits = 16,
      { name = "mrc.nack.tx_timestamp", base = base.DEC, meaning = "of the refused packet; 0 if it had none", },
    },
  } },
  { name = "PETH", title = "reliability probe", words = {
    { bits = 16,
      { name = "mrc.probe.type", mask = 0xf000, base = base.DEC, meaning = "0; ignored (mirrors UET's)", },
      { name = "mrc.probe.next_header", mask = 0xf80, base = base.DEC, meaning = "0; ignored (mirrors UET's)", },
    },
    { bits = 8 },
    { bits = 8,
      { name = "mrc.probe.vendor_info", base = base.HEX, meaning = "0; ignored", },
    },
    { bits = 16,
      { name = "mrc.probe.probe_id", base = base.DEC, meaning = "the SACK that answers returns it", },
    },
    { bits = 16 },
    { bits = 16,
      { name = "mrc.probe.spdcid", base = base.HEX, meaning = "low 16 bits of the sender's QPN; ignored", },
    },
    { bits = 16,
      { name = "mrc.probe.dpdcid", base = base.HEX, meaning = "low 16 bits of the receiver's QPN; ignored", },
    },
    { bits = 16,
      { name = "mrc.probe.tx_timestamp", base = base.DEC, meaning = "when the packet was sent, in the unit that tsr says", },
    },
    { bits = 16,
      { name = "mrc.probe.tsr", mask = 0x8000, base = base.DEC, meaning = "unit: 0 is 128 ns, 1 is the sender's own",
        values = { [0x0] = "128 ns", [0x1] = "sender's own" } },
      { name = "mrc.probe.ftype", mask = 0xf, base = base.DEC, meaning = "1: the timestamp is one",
        values = { [0x1] = "timestamp" } },
    },
  } },
  { name = "ERTH", title = "endpoint request, to QPN 2", words = {
    { bits = 16,
      { name = "mrc.request.type", mask = 0xf000, base = base.DEC, meaning = "0; ignored (mirrors UET's)", },
      { name = "mrc.request.next_header", mask = 0xf80, base = base.DEC, meaning = "0; ignored (mirrors UET's)", },
      { name = "mrc.request.op", mask = 0x3, base = base.DEC, meaning = "0 PORT_STATUS_UPDATE, 1 EV_PROBE; others are refused",
        values = { [0x0] = "PORT_STATUS_UPDATE", [0x1] = "EV_PROBE" } },
    },
    { bits = 8 },
    { bits = 8,
      { name = "mrc.request.vendor_info", base = base.HEX, meaning = "0; ignored", },
    },
    { bits = 32,
      { name = "mrc.request.port_status_mask", base = base.HEX, meaning = "bit p: port p is reachable, from 0; only with op 0", },
    },
    { bits = 32 },
    { bits = 16,
      { name = "mrc.request.tx_timestamp", base = base.DEC, meaning = "when the packet was sent, in the unit that tsr says", },
    },
    { bits = 16,
      { name = "mrc.request.tsr", mask = 0x8000, base = base.DEC, meaning = "unit: 0 is 128 ns, 1 is the sender's own",
        values = { [0x0] = "128 ns", [0x1] = "sender's own" } },
      { name = "mrc.request.ftype", mask = 0xf, base = base.DEC, meaning = "1: the timestamp is one",
        values = { [0x1] = "timestamp" } },
    },
  } },
  { name = "EETH", title = "endpoint response, to QPN 2", words = {
    { bits = 16,
      { name = "mrc.response.type", mask = 0xf000, base = base.DEC, meaning = "0; ignored (mirrors UET's)", },
      { name = "mrc.response.next_header", mask = 0xf80, base = base.DEC, meaning = "0; ignored (mirrors UET's)", },
      { name = "mrc.response.op", mask = 0xc, base = base.DEC, meaning = "as in the request; the id decides on receipt",
        values = { [0x0] = "PORT_STATUS_UPDATE", [0x1] = "EV_PROBE" } },
    },
    { bits = 16 },
    { bits = 64 },
    { bits = 64 },
    { bits = 64 },
    { bits = 16,
      { name = "mrc.response.tx_timestamp", base = base.DEC, meaning = "that of the request", },
    },
    { bits = 16 },
    { bits = 32 },
  } },
}
local KINDS = {
  { name = "WRITE", opcodes = { 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xcb }, headers = { "METH", "TSETH", "RETH", "ImmDt" } },
  { name = "ACK", opcodes = { 0xd1 }, headers = { "AETH" } },
  { name = "SACK", opcodes = { 0xdc }, headers = { "SETH", "CC_STATE" } },
  { name = "NACK", opcodes = { 0xdd }, headers = { "NETH" } },
  { name = "reliability probe", opcodes = { 0xde }, headers = { "PETH" } },
  { name = "endpoint request", opcodes = { 0xd8 }, headers = { "ERTH" } },
  { name = "endpoint response", opcodes = { 0xd9 }, headers = { "EETH" } },
}
local IMMEDIATE_OPCODES = { [0xc9] = true, [0xcb] = true }
-- end

local mrc = Proto("mrc", "Multipath Reliable Connection")

mrc.prefs.trimmed_dscps = Pref.string("DSCPs of trimmed packets", TRIMMED_DSCPS,
  "In packets of these classes only METH and TSETH are read. Decimal, with commas.")
mrc.prefs.label_first = Pref.bool("EVs in SACK and NACK begin with the flow label's half", true,
  "Otherwise with that of the UDP source port.")

-- Fields ------------------------------------------------------------------------------------------

local UNSIGNED = { [8] = ProtoField.uint8, [16] = ProtoField.uint16, [32] = ProtoField.uint32,
  [64] = ProtoField.uint64 }
local SIGNED = { [16] = ProtoField.int16 }

local ev_field = ProtoField.uint32("mrc.ev", "EV", base.HEX, nil, nil,
  "the EV that the packet travels on: flow label, then UDP source port; of IPv4 the port alone")
local carrier_field = ProtoField.string("mrc.carrier", "Carrier",
  "uSIDs of the outer destination or of a segment, by tier")
local usid_field = ProtoField.uint16("mrc.usid", "uSID", base.HEX, nil, nil,
  "one uSID: role, plane, index")
local request_id_field = ProtoField.uint16("mrc.request_id", "Request id", base.DEC, nil, nil,
  "of an endpoint request or response: the low 16 bits of BTH.psn")
local payload_field = ProtoField.bytes("mrc.payload", "Payload")
local pad_field = ProtoField.bytes("mrc.padding", "Padding")
local cut_field = ProtoField.bytes("mrc.cut", "Rest of a trimmed packet")
local other_state_field = ProtoField.bytes("mrc.sack.cc_state", "Congestion state of another type")
local icrc_field = ProtoField.uint32("mrc.icrc", "iCRC", base.HEX, nil, nil, "not checked")

local kind_of = {}
for _, kind in ipairs(KINDS) do
  for _, opcode in ipairs(kind.opcodes) do
    kind_of[opcode] = kind
  end
end

local all_fields = { ev_field, carrier_field, usid_field, request_id_field, payload_field, pad_field,
  cut_field, other_state_field, icrc_field }
local header_named = {}

for _, header in ipairs(HEADERS) do
  header_named[header.name] = header
  header.bytes = 0
  for _, word in ipairs(header.words) do
    word.at = header.bytes
    header.bytes = header.bytes + word.bits / 8
    for _, field in ipairs(word) do
      local make = (field.signed and SIGNED or UNSIGNED)[word.bits]
      local last = field.name:match("[^.]*$")
      if word.bits == 64 then
        field.proto = make(field.name, last, field.base, nil, nil, field.meaning)
      else
        field.proto = make(field.name, last, field.base, field.values, field.mask, field.meaning)
      end
      all_fields[#all_fields + 1] = field.proto
    end
  end
end
mrc.fields = all_fields

local notes = {
  retransmission = ProtoExpert.new("mrc.note.retransmission", "Retransmission",
    expert.group.SEQUENCE, expert.severity.NOTE),
  retransmission_answered = ProtoExpert.new("mrc.note.retransmission_answered",
    "Answers a retransmission", expert.group.SEQUENCE, expert.severity.CHAT),
  ecn = ProtoExpert.new("mrc.note.ecn", "Congestion seen on the way (ECN)", expert.group.SEQUENCE,
    expert.severity.NOTE),
  marked = ProtoExpert.new("mrc.note.marked", "The packet that is answered had seen congestion",
    expert.group.SEQUENCE, expert.severity.NOTE),
  trimmed = ProtoExpert.new("mrc.note.trimmed", "Trimmed", expert.group.SEQUENCE,
    expert.severity.WARN),
  out_of_window = ProtoExpert.new("mrc.note.out_of_window", "Out of the responder's window",
    expert.group.SEQUENCE, expert.severity.WARN),
  refused = ProtoExpert.new("mrc.note.refused", "The responder refused a packet",
    expert.group.SEQUENCE, expert.severity.WARN),
  failed = ProtoExpert.new("mrc.note.failed", "The responder failed a work request",
    expert.group.RESPONSE_CODE, expert.severity.ERROR),
  version = ProtoExpert.new("mrc.note.version", "Not transport version 0", expert.group.PROTOCOL,
    expert.severity.WARN),
  short = ProtoExpert.new("mrc.note.short", "Ends within a header", expert.group.MALFORMED,
    expert.severity.ERROR),
}
local experts = {}
for _, note in pairs(notes) do
  experts[#experts + 1] = note
end
mrc.experts = experts

local function existing(name)
  local ok, field = pcall(Field.new, name)
  return ok and field or function() end
end

local ip6_label = Field.new("ipv6.flow")
local ip6_destination = Field.new("ipv6.dst")
local ip4_source = Field.new("ip.src")
local udp_source = Field.new("udp.srcport")
local dscps = { Field.new("ipv6.tclass.dscp"), Field.new("ip.dsfield.dscp") }
local ecns = { Field.new("ipv6.tclass.ecn"), Field.new("ip.dsfield.ecn") }
local segments = existing("ipv6.routing.srh.addr")

-- What is before UDP --------------------------------------------------------------------------------

local function any_value(fields, wanted)
  for _, field in ipairs(fields) do
    for _, info in ipairs({ field() }) do
      if wanted[info.value] then
        return true
      end
    end
  end
  return false
end

-- The EV that a packet travels on. Of several IP headers the last one counts.
local function ev_of_packet()
  local labels, sources, ports = { ip6_label() }, { ip4_source() }, { udp_source() }
  local label, source = labels[#labels], sources[#sources]
  local port = ports[#ports].value
  if not label or source and source.offset > label.offset then
    return port
  end
  return label.value % EV_HALF * EV_HALF + port
end

local function node_name(usid)
  if usid == DT6_USID then
    return "End.DT6"
  end
  local role = ROLES[math.floor(usid / 0x1000)]
  local plane, index = math.floor(usid % 0x1000 / PLANE_UNIT), usid % PLANE_UNIT
  if role == "T0" or role == "T1" then
    return string.format("p%d_%s_%d", plane, role:lower(), index)
  elseif role == "NIC" then
    return string.format("NIC %d of plane %d", index, plane)
  end
  return string.format("%04x", usid)
end

-- Show the uSIDs of an address; nothing if it is none of SRv6's.
local function add_carrier(tree, address)
  local bytes = address.range:bytes()
  local function word(at)
    return bytes:get_index(at) * 0x100 + bytes:get_index(at + 1)
  end
  if word(0) * 0x10000 + word(2) ~= LOCATOR_BLOCK then
    return
  end
  local names, usids = {}, {}
  for at = 4, 2 + 2 * USIDS, 2 do
    if word(at) == 0 then
      break
    end
    usids[#usids + 1] = word(at)
    names[#names + 1] = node_name(word(at))
  end
  local item = tree:add(carrier_field, table.concat(names, " > ")):set_generated()
  for at, usid in ipairs(usids) do
    item:add(usid_field, usid):set_generated():append_text(" " .. names[at])
  end
end

-- Headers ---------------------------------------------------------------------------------------------

-- Show a header; returns its values by the last part of their names.
local function add_header(tree, header, tvb, at)
  local part = tree:add(mrc, tvb(at, header.bytes), header.name .. ", " .. header.title)
  local values = { tree = part, items = {} }
  for _, word in ipairs(header.words) do
    local range = tvb(at + word.at, word.bits / 8)
    for _, field in ipairs(word) do
      local short = field.name:match("[^.]*$")
      local item
      if short == "ev" and not mrc.prefs.label_first then
        item = part:add(field.proto, range, range:uint() % EV_HALF * EV_HALF + range(0, 2):uint())
      else
        item = part:add(field.proto, range)
      end
      values.items[short] = item
      if word.bits <= 32 then
        local value = range:uint()
        if field.signed then
          value = range:int()
        elseif field.mask then
          -- Lua 5.2 and 5.4 have no operator for bits in common.
          local unit = 1
          while field.mask % (unit * 2) == 0 do
            unit = unit * 2
          end
          value = math.floor(value / unit) % (field.mask / unit + 1)
        end
        values[short] = value
      end
    end
  end
  return values
end

local describe = {
  WRITE = function(v)
    return v.bth.rtx == 1 and " again" or ""
  end,
  ACK = function(v, root)
    if v.AETH.syndrome > 0x1f then
      root:add_proto_expert_info(notes.failed)
    end
    return string.format(" msn %d%s", v.AETH.msn, v.AETH.syndrome > 0x1f and " NAK" or "")
  end,
  SACK = function(v, root)
    if v.bth.rtx == 1 then
      root:add_proto_expert_info(notes.retransmission_answered)
    end
    if v.SETH.m == 1 or v.SETH.m == 2 then
      v.SETH.items.m:add_proto_expert_info(notes.marked)
    end
    local answered = v.SETH.pr == 1 and string.format("probe %d", v.SETH.ack_psn_offset % 0x10000)
      or string.format("answers %d", (v.SETH.cack + v.SETH.ack_psn_offset) % 0x1000000)
    return string.format(" cack %d, %s", v.SETH.cack, answered)
  end,
  NACK = function(v)
    local reason = header_named.NETH
    local text = reason.reasons[v.NETH.reason] or string.format("reason %02x", v.NETH.reason)
    local note = notes.refused
    if text:find("TRIMMED") then
      note = notes.trimmed
    elseif text:find("WINDOW") then
      note = notes.out_of_window
    end
    v.NETH.items.reason:add_proto_expert_info(note)
    return string.format(" %s", text)
  end,
  ["reliability probe"] = function(v)
    return string.format(" %d", v.PETH.probe_id)
  end,
  ["endpoint request"] = function(v)
    local what = v.ERTH.op == 1 and "EV probe"
      or string.format("ports %x", v.ERTH.port_status_mask)
    return string.format(" %d: %s", v.bth.psn % 0x10000, what)
  end,
  ["endpoint response"] = function(v)
    return string.format(" %d", v.bth.psn % 0x10000)
  end,
}
for _, word in ipairs(header_named.NETH.words) do
  for _, field in ipairs(word) do
    if field.name == "mrc.nack.reason" then
      header_named.NETH.reasons = field.values
    end
  end
end

-- Whether a WRITE was trimmed: its class says so, or it ends before its RETH and iCRC.
local function is_trimmed(behind, headers_bytes)
  local wanted = {}
  for dscp in mrc.prefs.trimmed_dscps:gmatch("%d+") do
    wanted[tonumber(dscp)] = true
  end
  return any_value(dscps, wanted) or behind < headers_bytes + ICRC_BYTES
end

local BTH = header_named.BTH

local function dissect(tvb, pinfo, root)
  local opcode = tvb(0, 1):uint()
  local kind = kind_of[opcode]
  local tree = root:add(mrc, tvb())
  pinfo.cols.protocol = "MRC"
  local ev = ev_of_packet()
  tree:add(ev_field, ev):set_generated()
  local destinations = { ip6_destination() }
  for _, address in ipairs({ destinations[1], segments() }) do
    add_carrier(tree, address)
  end

  local bth = add_header(tree, BTH, tvb, 0)
  local values = { bth = bth }
  if bth.version ~= 0 then
    bth.items.version:add_proto_expert_info(notes.version)
  end
  if any_value(ecns, { [3] = true }) then
    tree:add_proto_expert_info(notes.ecn)
  end
  if bth.dqp == 2 then
    tree:add(request_id_field, tvb(10, 2))
  end

  local names, bytes = {}, BTH.bytes
  for _, name in ipairs(kind.headers) do
    local absent = name == "TSETH" and bth.ts == 0
      or name == "ImmDt" and not IMMEDIATE_OPCODES[opcode]
    if not absent then
      names[#names + 1] = name
      bytes = bytes + header_named[name].bytes
    end
  end
  local is_write = kind.name == "WRITE"
  local trimmed = is_write and is_trimmed(tvb:len(), bytes)
  if is_write and bth.rtx == 1 then
    bth.items.rtx:add_proto_expert_info(notes.retransmission)
  end

  local at = BTH.bytes
  for _, name in ipairs(names) do
    local header = header_named[name]
    if trimmed and name == "RETH" then
      break
    end
    if tvb:len() < at + header.bytes then
      tree:add_proto_expert_info(notes.short)
      return
    end
    if name == "CC_STATE" and values.SETH.cc_type ~= 0 then
      tree:add(other_state_field, tvb(at, header.bytes))
    else
      values[name] = add_header(tree, header, tvb, at)
    end
    at = at + header.bytes
  end

  local rest = tvb:len() - at
  if trimmed then
    tree:add_proto_expert_info(notes.trimmed)
    if rest > 0 then
      tree:add(cut_field, tvb(at, rest))
    end
  else
    local pad = is_write and bth.pad or 0
    local payload = rest - pad - ICRC_BYTES
    if payload < 0 then
      tree:add_proto_expert_info(notes.short)
      return
    end
    if payload > 0 then
      tree:add(payload_field, tvb(at, payload))
    end
    if pad > 0 then
      tree:add(pad_field, tvb(at + payload, pad))
    end
    tree:add_le(icrc_field, tvb(at + payload + pad, ICRC_BYTES))
  end

  local text = describe[kind.name](values, tree)
  if trimmed then
    text = text .. " trimmed"
  end
  pinfo.cols.info = string.format("%s%s, QPN %d, PSN %d, EV %08x", kind.name, text, bth.dqp,
    bth.psn, ev)
end

-- Whether a UDP datagram is one of MRC's.
local function is_mrc(tvb)
  return tvb:len() >= BTH.bytes and kind_of[tvb(0, 1):uint()] ~= nil
end

local udp_port = DissectorTable.get("udp.port")
local others = {}
for _, port in ipairs(UDP_PORTS) do
  others[port] = udp_port:get_dissector(port)
end

-- RoCEv2 has the same port: what is not of MRC goes to its dissector.
function mrc.dissector(tvb, pinfo, root)
  if is_mrc(tvb) then
    dissect(tvb, pinfo, root)
    return tvb:len()
  end
  local other = others[pinfo.dst_port]
  return other and other:call(tvb, pinfo, root) or 0
end

for _, port in ipairs(UDP_PORTS) do
  udp_port:add(port, mrc)
end

-- The UDP source port is half of an EV and may be any. Where another protocol has that port, UDP
-- would ask it first; a heuristic dissector is asked before, if the preference says so.
local is_port = {}
for _, port in ipairs(UDP_PORTS) do
  is_port[port] = true
end
mrc:register_heuristic("udp", function(tvb, pinfo, root)
  if not is_port[pinfo.dst_port] or not is_mrc(tvb) then
    return false
  end
  dissect(tvb, pinfo, root)
  return true
end)
pcall(set_preference, "udp.try_heuristic_first", true)
-- Zero is a checksum that tunnels may send over IPv6 (RFC 6935).
pcall(set_preference, "udp.ignore_ipv6_zero_checksum", true)
