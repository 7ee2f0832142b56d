// A herald client that copies host structures to the wire, as its specification suggests for
// little-endian hosts. Written from the specification alone.
//
//   herald HOST PORT pub CHANNEL COUNT    publish "0", "1", ... and leave
//   herald HOST PORT sub CHANNEL COUNT    print "ready", then COUNT messages, one a line
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#pragma pack(push, 1)
struct Header {
    uint16_t magic;
    uint8_t opcode;
    uint32_t length;
};
struct HandshakeAck {
    uint8_t status;
    uint64_t session;
};
struct MessageStart {
    uint8_t channel;
    uint64_t timestamp;
};
#pragma pack(pop)

static_assert(sizeof(Header) == 7, "the header has 7 bytes");

enum Opcode : uint8_t {
    HANDSHAKE_PUB = 0x01,
    HANDSHAKE_SUB = 0x02,
    HANDSHAKE_ACK = 0x03,
    DISCONNECT = 0x04,
    PUBLISH = 0x10,
    MESSAGE = 0x13,
    PING = 0x20,
    PONG = 0x21,
};

static int connection;

static void fail(const char *what) {
    fprintf(stderr, "herald: %s\n", what);
    exit(1);
}

static void send_frame(uint8_t opcode, const std::string &payload) {
    Header header{0xCAFE, opcode, static_cast<uint32_t>(payload.size())};
    std::string frame(reinterpret_cast<const char *>(&header), sizeof header);
    frame += payload;
    for (size_t sent = 0; sent < frame.size();) {
        ssize_t more = write(connection, frame.data() + sent, frame.size() - sent);
        if (more <= 0) fail("cannot send");
        sent += static_cast<size_t>(more);
    }
}

static void receive(void *to, size_t size) {
    for (size_t got = 0; got < size;) {
        ssize_t more = read(connection, static_cast<char *>(to) + got, size - got);
        if (more <= 0) fail("the broker closed the connection");
        got += static_cast<size_t>(more);
    }
}

static std::vector<char> receive_frame(Header &header) {
    receive(&header, sizeof header);
    if (header.magic != 0xCAFE || header.length > 1048576) fail("not a herald frame");
    std::vector<char> payload(header.length);
    if (header.length) receive(payload.data(), payload.size());
    return payload;
}

static void expect_acknowledgment() {
    Header header;
    std::vector<char> payload = receive_frame(header);
    HandshakeAck ack;
    if (header.opcode != HANDSHAKE_ACK || payload.size() != sizeof ack) fail("no HANDSHAKE_ACK");
    memcpy(&ack, payload.data(), sizeof ack);
    if (ack.status != 0 || ack.session == 0) fail("the handshake was refused");
}

static void open_connection(const char *host, const char *port) {
    addrinfo hints{}, *found;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, port, &hints, &found) != 0) fail("no such host");
    connection = socket(found->ai_family, found->ai_socktype, 0);
    if (connect(connection, found->ai_addr, found->ai_addrlen) != 0) fail("cannot connect");
    freeaddrinfo(found);
}

int main(int count, char **words) {
    if (count != 6) fail("usage: herald HOST PORT pub|sub CHANNEL COUNT");
    open_connection(words[1], words[2]);
    const char channel = static_cast<char>(atoi(words[4]));
    const int messages = atoi(words[5]);
    const std::string name = "foreign";
    const std::string named = std::string(1, static_cast<char>(name.size())) + name;
    if (strcmp(words[3], "pub") == 0) {
        send_frame(HANDSHAKE_PUB, std::string(1, channel) + named);
        expect_acknowledgment();
        for (int number = 0; number < messages; number++)
            send_frame(PUBLISH, std::string(1, channel) + std::to_string(number));
        send_frame(PING, "");
        Header header;
        do receive_frame(header);
        while (header.opcode != PONG);
        send_frame(DISCONNECT, "");
        return 0;
    }
    send_frame(HANDSHAKE_SUB, std::string("\x01") + channel + named);
    expect_acknowledgment();
    puts("ready");
    fflush(stdout);
    for (int got = 0; got < messages;) {
        Header header;
        std::vector<char> payload = receive_frame(header);
        if (header.opcode == PING) send_frame(PONG, "");
        if (header.opcode != MESSAGE) continue;
        MessageStart start;
        if (payload.size() < sizeof start) fail("a MESSAGE that is too short");
        memcpy(&start, payload.data(), sizeof start);
        if (static_cast<char>(start.channel) != channel) fail("a MESSAGE of another channel");
        printf("%.*s\n", static_cast<int>(payload.size() - sizeof start), payload.data() + sizeof start);
        fflush(stdout);
        got++;
    }
    send_frame(DISCONNECT, "");
    return 0;
}
