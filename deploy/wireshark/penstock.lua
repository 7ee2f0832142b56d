-- Wireshark dissector for the protocols of Penstock. `make dissector` writes this file.
-- Copy it to the folder of personal Lua plugins, or: tshark -X lua_script:penstock.lua -r FILE
-- Other ports than 7000: Analyze, Decode As, penstock; or -d tcp.port==PORT,penstock

local PORT = 7000
local LAMAMQ_NAME_BYTES_MAX = 1024
local LAMAMQ_VERSION_MIN = 256
local LAMAMQ_VERSION_MAX = 256
local LAMAMQ_BROKER_ID_BIT = 2147483648
local LAYOUTS, PROTOCOLS = {}, {}

-- Rheos v1

do
  local F = {}
  F[1] = ProtoField.uint8("penstock.rheos1.magic_byte", "Magic Byte", base.DEC, { [250] = "Rheos packet" })
  F[2] = ProtoField.uint32("penstock.rheos1.payload_length", "Payload Length", base.DEC)
  F[3] = ProtoField.bytes("penstock.rheos1.client_id", "Client ID")
  F[4] = ProtoField.uint8("penstock.rheos1.operation_code", "Operation Code", base.DEC, { [0] = "CREATE", [1] = "SUBSCRIBE", [2] = "PUBLISH" })
  F[5] = ProtoField.uint16("penstock.rheos1.length_of_topic_name", "Length of topic name", base.DEC)
  F[6] = ProtoField.string("penstock.rheos1.topic_name", "Topic name")
  F[7] = ProtoField.uint16("penstock.rheos1.payload_length_", "Payload length", base.DEC)
  F[8] = ProtoField.string("penstock.rheos1.payload_data", "Payload data")
  F[9] = ProtoField.uint8("penstock.rheos1.acknowledgment_magic_byte", "Acknowledgment Magic Byte", base.DEC, { [172] = "acknowledgment" })
  F[10] = ProtoField.bytes("penstock.rheos1.message_id", "Message ID")
  F[11] = ProtoField.uint8("penstock.rheos1.acknowledgment_code", "Acknowledgment Code", base.DEC, { [0] = "SUCCESS", [1] = "FAILED" })
  F[12] = ProtoField.uint8("penstock.rheos1.header_size", "Header Size", base.DEC, { [21] = "response" })
  F[13] = ProtoField.bytes("penstock.rheos1.sender_id", "Sender ID")
  F[14] = ProtoField.string("penstock.rheos1.payload_content", "Payload content")
  LAYOUTS.rheos1 = {
    REQUEST_1 = { title = "REQUEST_1", on = "Operation Code", names = { [0] = "CREATE", [1] = "SUBSCRIBE", [2] = "PUBLISH" }, parts = {
    { kind = "number", name = "Magic Byte", field = F[1], size = 1, known = { [250] = "Rheos packet" } },
    { kind = "number", name = "Payload Length", field = F[2], size = 4, maximum = 131074 },
    { kind = "data", field = F[3], length = 16 },
    { kind = "number", name = "Operation Code", field = F[4], size = 1, known = { [0] = "CREATE", [1] = "SUBSCRIBE", [2] = "PUBLISH" } },
    { kind = "window", length = "Payload Length", parts = {
      { kind = "number", name = "Length of topic name", field = F[5], size = 2 },
      { kind = "data", field = F[6], length = "Length of topic name" },
      { kind = "number", name = "Payload length", field = F[7], size = 2 },
      { kind = "data", field = F[8], length = "Payload length" },
    } },
  } },
    ACKNOWLEDGMENT_1 = { title = "Acknowledgment", parts = {
    { kind = "number", name = "Acknowledgment Magic Byte", field = F[9], size = 1, known = { [172] = "acknowledgment" } },
    { kind = "data", field = F[10], length = 16 },
    { kind = "number", name = "Acknowledgment Code", field = F[11], size = 1, known = { [0] = "SUCCESS", [1] = "FAILED" } },
  } },
    RESPONSE_1 = { title = "Response", parts = {
    { kind = "number", name = "Header Size", field = F[12], size = 1, known = { [21] = "response" } },
    { kind = "number", name = "Payload Length", field = F[2], size = 4, maximum = 16777216 },
    { kind = "data", field = F[13], length = 16 },
    { kind = "data", field = F[14], length = "Payload Length" },
  } },
  }
  local proto = Proto("penstock.rheos1", "Rheos v1")
  proto.fields = F
  local fault = ProtoExpert.new("penstock.rheos1.fault", "fault", expert.group.MALFORMED, expert.severity.ERROR)
  proto.experts = { fault }
  PROTOCOLS.rheos1 = { proto = proto, fault = fault }
end

-- Rheos v2

do
  local F = {}
  F[1] = ProtoField.uint8("penstock.rheos2.magic", "Magic", base.DEC, { [250] = "Rheos packet" })
  F[2] = ProtoField.uint32("penstock.rheos2.payload_length", "Payload Length", base.DEC)
  F[3] = ProtoField.bytes("penstock.rheos2.client_id", "Client ID")
  F[4] = ProtoField.uint8("penstock.rheos2.operation_code", "Operation Code", base.DEC, { [0] = "CREATE", [1] = "SUBSCRIBE", [2] = "PUBLISH" })
  F[5] = ProtoField.uint16("penstock.rheos2.event_name_length", "Event Name Length", base.DEC)
  F[6] = ProtoField.uint32("penstock.rheos2.data_length", "Data Length", base.DEC)
  F[7] = ProtoField.string("penstock.rheos2.event_name", "Event Name")
  F[8] = ProtoField.string("penstock.rheos2.data", "Data")
  F[9] = ProtoField.uint32("penstock.rheos2.crc32", "CRC32", base.DEC)
  F[10] = ProtoField.uint8("penstock.rheos2.magic_", "Magic", base.DEC, { [172] = "acknowledgment" })
  F[11] = ProtoField.uint8("penstock.rheos2.ack_code", "Ack Code", base.DEC, { [0] = "SUCCESS", [1] = "FAILED" })
  F[12] = ProtoField.bytes("penstock.rheos2.message_id", "Message ID")
  LAYOUTS.rheos2 = {
    EVENT_2 = { title = "EVENT_2", on = "Operation Code", names = { [0] = "CREATE", [1] = "SUBSCRIBE", [2] = "PUBLISH" }, parts = {
    { kind = "number", name = "Magic", field = F[1], size = 1, known = { [250] = "Rheos packet" } },
    { kind = "number", name = "Payload Length", field = F[2], size = 4, maximum = 16777216 },
    { kind = "data", field = F[3], length = 16 },
    { kind = "number", name = "Operation Code", field = F[4], size = 1, known = { [0] = "CREATE", [1] = "SUBSCRIBE", [2] = "PUBLISH" } },
    { kind = "window", length = "Payload Length", parts = {
      { kind = "number", name = "Event Name Length", field = F[5], size = 2 },
      { kind = "number", name = "Data Length", field = F[6], size = 4 },
      { kind = "data", field = F[7], length = "Event Name Length" },
      { kind = "data", field = F[8], length = "Data Length" },
    } },
    { kind = "number", name = "CRC32", field = F[9], size = 4, sum = true },
  } },
    ACKNOWLEDGMENT_2 = { title = "Acknowledgment", parts = {
    { kind = "number", name = "Magic", field = F[10], size = 1, known = { [172] = "acknowledgment" } },
    { kind = "number", name = "Ack Code", field = F[11], size = 1, known = { [0] = "SUCCESS", [1] = "FAILED" } },
    { kind = "data", field = F[12], length = 16 },
    { kind = "number", name = "CRC32", field = F[9], size = 4, sum = true },
  } },
  }
  local proto = Proto("penstock.rheos2", "Rheos v2")
  proto.fields = F
  local fault = ProtoExpert.new("penstock.rheos2.fault", "fault", expert.group.MALFORMED, expert.severity.ERROR)
  proto.experts = { fault }
  PROTOCOLS.rheos2 = { proto = proto, fault = fault }
end

-- fleximq

do
  local F = {}
  F[1] = ProtoField.uint8("penstock.fleximq.version", "Version", base.DEC, { [1] = "fleximq v1" })
  F[2] = ProtoField.uint8("penstock.fleximq.type", "Type", base.DEC, { [0] = "JOIN", [1] = "REQ", [2] = "REP", [3] = "NOTIF", [4] = "BCAST", [5] = "PUB", [6] = "SUB", [7] = "UNSUB", [8] = "PING", [9] = "PONG" })
  F[3] = ProtoField.uint32("penstock.fleximq.clientid", "ClientID", base.DEC, { [0] = "UNASSIGNED", [1] = "BROKER" })
  F[4] = ProtoField.bytes("penstock.fleximq.reserved", "Reserved")
  F[5] = ProtoField.uint32("penstock.fleximq.headerlength", "HeaderLength", base.DEC)
  F[6] = ProtoField.bytes("penstock.fleximq.header", "Header")
  F[7] = ProtoField.uint64("penstock.fleximq.payloadlength", "PayloadLength", base.DEC)
  F[8] = ProtoField.bytes("penstock.fleximq.payload", "Payload")
  LAYOUTS.fleximq = {
    MESSAGE = { title = "MESSAGE", on = "Type", names = { [0] = "JOIN", [1] = "REQ", [2] = "REP", [3] = "NOTIF", [4] = "BCAST", [5] = "PUB", [6] = "SUB", [7] = "UNSUB", [8] = "PING", [9] = "PONG" }, parts = {
    { kind = "number", name = "Version", field = F[1], size = 1, known = { [1] = "fleximq v1" } },
    { kind = "number", name = "Type", field = F[2], size = 1, known = { [0] = "JOIN", [1] = "REQ", [2] = "REP", [3] = "NOTIF", [4] = "BCAST", [5] = "PUB", [6] = "SUB", [7] = "UNSUB", [8] = "PING", [9] = "PONG" } },
    { kind = "number", name = "ClientID", field = F[3], size = 4 },
    { kind = "data", field = F[4], length = 16 },
    { kind = "number", name = "HeaderLength", field = F[5], size = 4, maximum = 65536 },
    { kind = "data", field = F[6], length = "HeaderLength", packed = true },
    { kind = "number", name = "PayloadLength", field = F[7], size = 8, maximum = 1073741824 },
    { kind = "data", field = F[8], length = "PayloadLength", packed = true },
  } },
  }
  local proto = Proto("penstock.fleximq", "fleximq")
  proto.fields = F
  local fault = ProtoExpert.new("penstock.fleximq.fault", "fault", expert.group.MALFORMED, expert.severity.ERROR)
  proto.experts = { fault }
  PROTOCOLS.fleximq = { proto = proto, fault = fault }
end

-- herald

do
  local F = {}
  F[1] = ProtoField.uint16("penstock.herald.magic", "Magic", base.DEC, { [51966] = "herald" })
  F[2] = ProtoField.uint8("penstock.herald.opcode", "OpCode", base.DEC, { [1] = "HANDSHAKE_PUB", [2] = "HANDSHAKE_SUB", [3] = "HANDSHAKE_ACK", [4] = "DISCONNECT", [16] = "PUBLISH", [17] = "SUBSCRIBE", [18] = "UNSUBSCRIBE", [19] = "MESSAGE", [32] = "PING", [33] = "PONG", [255] = "ERROR" })
  F[3] = ProtoField.uint32("penstock.herald.length", "Length", base.DEC)
  F[4] = ProtoField.uint8("penstock.herald.channel", "Channel", base.DEC)
  F[5] = ProtoField.uint8("penstock.herald.clientid_len", "ClientID Len", base.DEC)
  F[6] = ProtoField.string("penstock.herald.clientid", "ClientID")
  F[7] = ProtoField.uint8("penstock.herald.channel_count", "Channel Count", base.DEC)
  F[8] = ProtoField.bytes("penstock.herald.channels", "Channels")
  F[9] = ProtoField.uint8("penstock.herald.status", "Status", base.DEC, { [0] = "success", [1] = "INVALID_HANDSHAKE", [2] = "CHANNEL_NOT_FOUND", [3] = "MESSAGE_TOO_LARGE", [4] = "RATE_LIMIT_EXCEEDED", [5] = "PROTOCOL_VERSION_MISMATCH", [6] = "INVALID_OPCODE", [7] = "MALFORMED_MESSAGE", [8] = "UNAUTHORIZED" })
  F[10] = ProtoField.uint64("penstock.herald.sessionid", "SessionID", base.DEC)
  F[11] = ProtoField.string("penstock.herald.message", "Message")
  F[12] = ProtoField.uint64("penstock.herald.timestamp", "Timestamp", base.DEC)
  F[13] = ProtoField.uint8("penstock.herald.errorcode", "ErrorCode", base.DEC, { [1] = "INVALID_HANDSHAKE", [2] = "CHANNEL_NOT_FOUND", [3] = "MESSAGE_TOO_LARGE", [4] = "RATE_LIMIT_EXCEEDED", [5] = "PROTOCOL_VERSION_MISMATCH", [6] = "INVALID_OPCODE", [7] = "MALFORMED_MESSAGE", [8] = "UNAUTHORIZED" })
  F[14] = ProtoField.bytes("penstock.herald.payload", "Payload")
  LAYOUTS.herald = {
    FRAME = { title = "FRAME", on = "OpCode", names = { [1] = "HANDSHAKE_PUB", [2] = "HANDSHAKE_SUB", [3] = "HANDSHAKE_ACK", [4] = "DISCONNECT", [16] = "PUBLISH", [17] = "SUBSCRIBE", [18] = "UNSUBSCRIBE", [19] = "MESSAGE", [32] = "PING", [33] = "PONG", [255] = "ERROR" }, parts = {
    { kind = "number", name = "Magic", field = F[1], size = 2, known = { [51966] = "herald" } },
    { kind = "number", name = "OpCode", field = F[2], size = 1, known = { [1] = "HANDSHAKE_PUB", [2] = "HANDSHAKE_SUB", [3] = "HANDSHAKE_ACK", [4] = "DISCONNECT", [16] = "PUBLISH", [17] = "SUBSCRIBE", [18] = "UNSUBSCRIBE", [19] = "MESSAGE", [32] = "PING", [33] = "PONG", [255] = "ERROR" } },
    { kind = "number", name = "Length", field = F[3], size = 4, maximum = 1048576 },
    { kind = "window", length = "Length", parts = {
      { kind = "choice", on = "OpCode", other = {
        { kind = "data", field = F[14] },
      }, cases = {
        [1] = {
          { kind = "number", name = "Channel", field = F[4], size = 1 },
          { kind = "number", name = "ClientID Len", field = F[5], size = 1 },
          { kind = "data", field = F[6], length = "ClientID Len" },
        },
        [2] = {
          { kind = "number", name = "Channel Count", field = F[7], size = 1 },
          { kind = "data", field = F[8], length = "Channel Count" },
          { kind = "number", name = "ClientID Len", field = F[5], size = 1 },
          { kind = "data", field = F[6], length = "ClientID Len" },
        },
        [3] = {
          { kind = "number", name = "Status", field = F[9], size = 1, known = { [0] = "success", [1] = "INVALID_HANDSHAKE", [2] = "CHANNEL_NOT_FOUND", [3] = "MESSAGE_TOO_LARGE", [4] = "RATE_LIMIT_EXCEEDED", [5] = "PROTOCOL_VERSION_MISMATCH", [6] = "INVALID_OPCODE", [7] = "MALFORMED_MESSAGE", [8] = "UNAUTHORIZED" } },
          { kind = "number", name = "SessionID", field = F[10], size = 8 },
        },
        [4] = {},
        [16] = {
          { kind = "number", name = "Channel", field = F[4], size = 1 },
          { kind = "data", field = F[11] },
        },
        [17] = {
          { kind = "number", name = "Channel", field = F[4], size = 1 },
        },
        [18] = {
          { kind = "number", name = "Channel", field = F[4], size = 1 },
        },
        [19] = {
          { kind = "number", name = "Channel", field = F[4], size = 1 },
          { kind = "number", name = "Timestamp", field = F[12], size = 8 },
          { kind = "data", field = F[11] },
        },
        [32] = {},
        [33] = {},
        [255] = {
          { kind = "number", name = "ErrorCode", field = F[13], size = 1, known = { [1] = "INVALID_HANDSHAKE", [2] = "CHANNEL_NOT_FOUND", [3] = "MESSAGE_TOO_LARGE", [4] = "RATE_LIMIT_EXCEEDED", [5] = "PROTOCOL_VERSION_MISMATCH", [6] = "INVALID_OPCODE", [7] = "MALFORMED_MESSAGE", [8] = "UNAUTHORIZED" } },
        },
      } },
    } },
  } },
  }
  local proto = Proto("penstock.herald", "herald")
  proto.fields = F
  local fault = ProtoExpert.new("penstock.herald.fault", "fault", expert.group.MALFORMED, expert.severity.ERROR)
  proto.experts = { fault }
  PROTOCOLS.herald = { proto = proto, fault = fault }
end

-- LamaMQ

do
  local F = {}
  F[1] = ProtoField.uint8("penstock.lamamq.auth_method", "auth_method", base.DEC, { [0] = "the only one" })
  F[2] = ProtoField.uint32("penstock.lamamq.identity_name_size", "identity_name size", base.DEC)
  F[3] = ProtoField.string("penstock.lamamq.identity_name", "identity_name")
  F[4] = ProtoField.uint32("penstock.lamamq.identity_key_size", "identity_key size", base.DEC)
  F[5] = ProtoField.bytes("penstock.lamamq.identity_key", "identity_key")
  F[6] = ProtoField.uint8("penstock.lamamq.max_version_major_supported", "max_version_major_supported", base.DEC)
  F[7] = ProtoField.uint8("penstock.lamamq.max_version_minor_supported", "max_version_minor_supported", base.DEC)
  F[8] = ProtoField.uint8("penstock.lamamq.min_version_major_supported", "min_version_major_supported", base.DEC)
  F[9] = ProtoField.uint8("penstock.lamamq.min_version_minor_supported", "min_version_minor_supported", base.DEC)
  F[10] = ProtoField.uint8("penstock.lamamq.version_used_major", "version_used_major", base.DEC)
  F[11] = ProtoField.uint8("penstock.lamamq.version_used_minor", "version_used_minor", base.DEC)
  F[12] = ProtoField.uint32("penstock.lamamq.message_id", "Message id", base.DEC)
  F[13] = ProtoField.uint8("penstock.lamamq.message_type", "Message type", base.DEC, { [0] = "Push message", [1] = "Forward message", [32] = "Topic subscribe", [33] = "Topic unsubscribe", [64] = "Middleware register", [65] = "Middleware unregister" })
  F[14] = ProtoField.uint32("penstock.lamamq.created_at", "created at", base.DEC)
  F[15] = ProtoField.uint32("penstock.lamamq.routing_key_size", "routing key size", base.DEC)
  F[16] = ProtoField.string("penstock.lamamq.routing_key", "routing key")
  F[17] = ProtoField.uint16("penstock.lamamq.headers", "headers", base.DEC)
  F[18] = ProtoField.uint32("penstock.lamamq.key_size", "key size", base.DEC)
  F[19] = ProtoField.string("penstock.lamamq.key", "key")
  F[20] = ProtoField.uint32("penstock.lamamq.value_size", "value size", base.DEC)
  F[21] = ProtoField.string("penstock.lamamq.value", "value")
  F[22] = ProtoField.uint8("penstock.lamamq.payload_type", "payload type", base.DEC, { [0] = "payload_empty", [1] = "payload_string", [2] = "payload_buffer" })
  F[23] = ProtoField.uint32("penstock.lamamq.payload_size", "payload size", base.DEC)
  F[24] = ProtoField.string("penstock.lamamq.payload", "payload")
  F[25] = ProtoField.uint32("penstock.lamamq.hook_name_size", "hook name size", base.DEC)
  F[26] = ProtoField.string("penstock.lamamq.hook_name", "hook name")
  F[27] = ProtoField.uint32("penstock.lamamq.priority", "priority", base.DEC)
  F[28] = ProtoField.uint32("penstock.lamamq.timeout_in_ms", "timeout in ms", base.DEC)
  F[29] = ProtoField.uint8("penstock.lamamq.strategy", "strategy", base.DEC, { [0] = "tell and go on", [1] = "wait and refuse when no answer", [2] = "wait and go on when no answer" })
  F[30] = ProtoField.uint8("penstock.lamamq.hook_type", "hook type", base.DEC, { [0] = "connect", [1] = "disconnect", [16] = "message pushed", [32] = "subscribed", [33] = "unsubscribed", [64] = "registered", [65] = "unregistered" })
  F[31] = ProtoField.uint16("penstock.lamamq.conditions", "conditions", base.DEC)
  F[32] = ProtoField.uint8("penstock.lamamq.condition_type", "condition type", base.DEC, { [0] = "topic is", [4] = "header is", [5] = "has header" })
  F[33] = ProtoField.uint32("penstock.lamamq.topic_size", "topic size", base.DEC)
  F[34] = ProtoField.string("penstock.lamamq.topic", "topic")
  F[35] = ProtoField.uint32("penstock.lamamq.header_size", "header size", base.DEC)
  F[36] = ProtoField.string("penstock.lamamq.header", "header")
  F[37] = ProtoField.uint32("penstock.lamamq.message_id_", "message id", base.DEC)
  F[38] = ProtoField.uint8("penstock.lamamq.error", "error", base.DEC, { [0] = "no error", [1] = "Server Exception", [2] = "Bad request", [3] = "Middleware timeout", [4] = "Middleware refused" })
  F[39] = ProtoField.uint32("penstock.lamamq.error_message_size", "error_message size", base.DEC)
  F[40] = ProtoField.string("penstock.lamamq.error_message", "error_message")
  LAYOUTS.lamamq = {
    AUTHENTICATION = { title = "Authentication", parts = {
    { kind = "number", name = "auth_method", field = F[1], size = 1, known = { [0] = "the only one" } },
    { kind = "number", name = "identity_name size", field = F[2], size = 4, maximum = 1024 },
    { kind = "data", field = F[3], length = "identity_name size" },
  } },
    AUTHENTICATION_WITH_KEY = { title = "Authentication", parts = {
    { kind = "number", name = "auth_method", field = F[1], size = 1, known = { [0] = "the only one" } },
    { kind = "number", name = "identity_name size", field = F[2], size = 4, maximum = 1024 },
    { kind = "data", field = F[3], length = "identity_name size" },
    { kind = "number", name = "identity_key size", field = F[4], size = 4, maximum = 4096 },
    { kind = "data", field = F[5], length = "identity_key size" },
  } },
    VERSION_OFFER = { title = "Supported protocol version", parts = {
    { kind = "number", name = "max_version_major_supported", field = F[6], size = 1 },
    { kind = "number", name = "max_version_minor_supported", field = F[7], size = 1 },
    { kind = "number", name = "min_version_major_supported", field = F[8], size = 1 },
    { kind = "number", name = "min_version_minor_supported", field = F[9], size = 1 },
  } },
    VERSION_CHOICE = { title = "Protocol version to use", parts = {
    { kind = "number", name = "version_used_major", field = F[10], size = 1 },
    { kind = "number", name = "version_used_minor", field = F[11], size = 1 },
  } },
    KEY_AND_CHOICE = { title = "Protocol version to use", parts = {
    { kind = "number", name = "identity_key size", field = F[4], size = 4, maximum = 4096 },
    { kind = "data", field = F[5], length = "identity_key size" },
    { kind = "number", name = "version_used_major", field = F[10], size = 1 },
    { kind = "number", name = "version_used_minor", field = F[11], size = 1 },
  } },
    MESSAGE = { title = "MESSAGE", on = "Message type", names = { [0] = "Push message", [1] = "Forward message", [32] = "Topic subscribe", [33] = "Topic unsubscribe", [64] = "Middleware register", [65] = "Middleware unregister" }, parts = {
    { kind = "number", name = "Message id", field = F[12], size = 4 },
    { kind = "number", name = "Message type", field = F[13], size = 1, known = { [0] = "Push message", [1] = "Forward message", [32] = "Topic subscribe", [33] = "Topic unsubscribe", [64] = "Middleware register", [65] = "Middleware unregister" } },
    { kind = "choice", on = "Message type", other = {}, cases = {
      [0] = {
        { kind = "number", name = "created at", field = F[14], size = 4 },
        { kind = "number", name = "routing key size", field = F[15], size = 4, maximum = 65535 },
        { kind = "data", field = F[16], length = "routing key size" },
        { kind = "number", name = "headers", field = F[17], size = 2, maximum = 65535 },
        { kind = "repeat", times = "headers", parts = {
          { kind = "number", name = "key size", field = F[18], size = 4 },
          { kind = "data", field = F[19], length = "key size" },
          { kind = "number", name = "value size", field = F[20], size = 4 },
          { kind = "data", field = F[21], length = "value size" },
        } },
        { kind = "number", name = "payload type", field = F[22], size = 1, known = { [0] = "payload_empty", [1] = "payload_string", [2] = "payload_buffer" } },
        { kind = "choice", on = "payload type", other = {}, cases = {
          [1] = {
            { kind = "number", name = "payload size", field = F[23], size = 4, maximum = 16777216 },
            { kind = "data", field = F[24], length = "payload size" },
          },
          [2] = {
            { kind = "number", name = "payload size", field = F[23], size = 4, maximum = 16777216 },
            { kind = "data", field = F[24], length = "payload size" },
          },
        } },
      },
      [1] = {
        { kind = "number", name = "created at", field = F[14], size = 4 },
        { kind = "number", name = "routing key size", field = F[15], size = 4, maximum = 65535 },
        { kind = "data", field = F[16], length = "routing key size" },
        { kind = "number", name = "headers", field = F[17], size = 2, maximum = 65535 },
        { kind = "repeat", times = "headers", parts = {
          { kind = "number", name = "key size", field = F[18], size = 4 },
          { kind = "data", field = F[19], length = "key size" },
          { kind = "number", name = "value size", field = F[20], size = 4 },
          { kind = "data", field = F[21], length = "value size" },
        } },
        { kind = "number", name = "payload type", field = F[22], size = 1, known = { [0] = "payload_empty", [1] = "payload_string", [2] = "payload_buffer" } },
        { kind = "choice", on = "payload type", other = {}, cases = {
          [1] = {
            { kind = "number", name = "payload size", field = F[23], size = 4, maximum = 16777216 },
            { kind = "data", field = F[24], length = "payload size" },
          },
          [2] = {
            { kind = "number", name = "payload size", field = F[23], size = 4, maximum = 16777216 },
            { kind = "data", field = F[24], length = "payload size" },
          },
        } },
      },
      [32] = {
        { kind = "number", name = "routing key size", field = F[15], size = 4, maximum = 65535 },
        { kind = "data", field = F[16], length = "routing key size" },
      },
      [33] = {
        { kind = "number", name = "routing key size", field = F[15], size = 4, maximum = 65535 },
        { kind = "data", field = F[16], length = "routing key size" },
      },
      [64] = {
        { kind = "number", name = "hook name size", field = F[25], size = 4, maximum = 255 },
        { kind = "data", field = F[26], length = "hook name size" },
        { kind = "number", name = "priority", field = F[27], size = 4 },
        { kind = "number", name = "timeout in ms", field = F[28], size = 4 },
        { kind = "number", name = "strategy", field = F[29], size = 1, known = { [0] = "tell and go on", [1] = "wait and refuse when no answer", [2] = "wait and go on when no answer" } },
        { kind = "number", name = "hook type", field = F[30], size = 1, known = { [0] = "connect", [1] = "disconnect", [16] = "message pushed", [32] = "subscribed", [33] = "unsubscribed", [64] = "registered", [65] = "unregistered" } },
        { kind = "choice", on = "hook type", other = {}, cases = {
          [16] = {
            { kind = "number", name = "conditions", field = F[31], size = 2, maximum = 64 },
            { kind = "repeat", times = "conditions", parts = {
              { kind = "number", name = "condition type", field = F[32], size = 1, known = { [0] = "topic is", [4] = "header is", [5] = "has header" } },
              { kind = "choice", on = "condition type", other = {}, cases = {
                [0] = {
                  { kind = "number", name = "topic size", field = F[33], size = 4, maximum = 65535 },
                  { kind = "data", field = F[34], length = "topic size" },
                },
                [4] = {
                  { kind = "number", name = "header size", field = F[35], size = 4 },
                  { kind = "data", field = F[36], length = "header size" },
                  { kind = "number", name = "value size", field = F[20], size = 4 },
                  { kind = "data", field = F[21], length = "value size" },
                },
                [5] = {
                  { kind = "number", name = "header size", field = F[35], size = 4 },
                  { kind = "data", field = F[36], length = "header size" },
                },
              } },
            } },
          },
        } },
      },
      [65] = {
        { kind = "number", name = "hook name size", field = F[25], size = 4, maximum = 255 },
        { kind = "data", field = F[26], length = "hook name size" },
      },
    } },
  } },
    ANSWER = { title = "Answer", parts = {
    { kind = "number", name = "message id", field = F[37], size = 4 },
    { kind = "number", name = "error", field = F[38], size = 1, known = { [0] = "no error", [1] = "Server Exception", [2] = "Bad request", [3] = "Middleware timeout", [4] = "Middleware refused" } },
    { kind = "choice", on = "error", other = {
      { kind = "number", name = "error_message size", field = F[39], size = 4 },
      { kind = "data", field = F[40], length = "error_message size" },
    }, cases = {
      [0] = {},
    } },
  } },
  }
  local proto = Proto("penstock.lamamq", "LamaMQ")
  proto.fields = F
  local fault = ProtoExpert.new("penstock.lamamq.fault", "fault", expert.group.MALFORMED, expert.severity.ERROR)
  proto.experts = { fault }
  PROTOCOLS.lamamq = { proto = proto, fault = fault }
end

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
