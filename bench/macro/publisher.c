/* Publishes one message from each of many connections in turn, one system call for each.
 *
 * Arguments: the number of connections, the bytes of a frame, how often each connection sends its
 * frame, and the bytes of an answer (0: none). Standard input has the file descriptor of each
 * connection as a 32-bit integer, and its frame. When it has read them, it writes a byte, and waits
 * for one: then it publishes and reads all answers. Then it writes another byte, and waits for one.
 * The connections are blocking ones, and already have their sessions.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { UNANSWERED = 1000 /* messages of a connection after which it reads what was answered */ };

static char ignored[64 * 1024];

static int take(int from, char *to, size_t size) {
    while (size > 0) {
        ssize_t length = read(from, to, size);
        if (length <= 0)
            return -1;
        to += length;
        size -= (size_t)length;
    }
    return 0;
}

static int give(int to, const char *from, size_t size) {
    while (size > 0) {
        ssize_t length = write(to, from, size);
        if (length < 0)
            return -1;
        from += length;
        size -= (size_t)length;
    }
    return 0;
}

/* Read answers until `size` bytes are left to read. Return what is left, or -1. */
static int64_t drain(int from, int64_t left, int64_t size) {
    while (left > size) {
        size_t most = (size_t)(left - size) < sizeof ignored ? (size_t)(left - size) : sizeof ignored;
        ssize_t length = recv(from, ignored, most, 0);
        if (length <= 0)
            return -1;
        left -= length;
    }
    return left;
}

static int wait_for_a_byte(void) {
    char byte = '.';
    return write(STDOUT_FILENO, &byte, 1) != 1 || read(STDIN_FILENO, &byte, 1) != 1;
}

int main(int count, char **arguments) {
    if (count != 5)
        return 2;
    size_t connections = (size_t)atol(arguments[1]), frame_bytes = (size_t)atol(arguments[2]);
    int64_t turns = atol(arguments[3]), answer_bytes = atol(arguments[4]);
    int32_t *sockets = calloc(connections, sizeof *sockets);
    int64_t *left = calloc(connections, sizeof *left);
    char *frames = malloc(connections * frame_bytes);
    if (!sockets || !left || !frames)
        return 1;
    for (size_t each = 0; each < connections; each++) {
        if (take(STDIN_FILENO, (char *)&sockets[each], sizeof *sockets) ||
            take(STDIN_FILENO, frames + each * frame_bytes, frame_bytes))
            return 1;
        left[each] = turns * answer_bytes;
    }
    if (wait_for_a_byte())
        return 1;
    for (int64_t turn = 1; turn <= turns; turn++)
        for (size_t each = 0; each < connections; each++) {
            if (give(sockets[each], frames + each * frame_bytes, frame_bytes))
                return 1;
            int64_t allowed = (turns - turn + UNANSWERED) * answer_bytes;
            if (turn % UNANSWERED == 0 &&
                (left[each] = drain(sockets[each], left[each], allowed)) < 0)
                return 1;
        }
    for (size_t each = 0; each < connections; each++)
        if (drain(sockets[each], left[each], 0) < 0)
            return 1;
    return wait_for_a_byte();
}
