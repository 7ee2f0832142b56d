/* The bound of every broker on one thread: reads from one connection, writes to another.
 *
 * The first connection of a pair receives, and begins with a byte that is sent back to it. What the
 * second one sends is copied to the first, as it comes, until it closes. Arguments are the port and
 * the size of a read.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int copy(int from, int to, char *buffer, size_t size) {
    ssize_t length;
    while ((length = read(from, buffer, size)) > 0)
        for (ssize_t done = 0; done < length;) {
            ssize_t written = write(to, buffer + done, (size_t)(length - done));
            if (written < 0)
                return -1;
            done += written;
        }
    return 0;
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    size_t size = (size_t)atol(arguments[2]);
    char *buffer = malloc(size);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((unsigned short)atoi(arguments[1])),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    if (!buffer || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 8))
        return 1;
    for (;;) {
        char first;
        int receiver = accept(listener, NULL, NULL);
        if (read(receiver, &first, 1) == 1 && write(receiver, &first, 1) == 1) {
            int sender = accept(listener, NULL, NULL);
            if (copy(sender, receiver, buffer, size))
                return 1;
            close(sender);
        }
        close(receiver);
    }
}
