// A Rheos client for both versions of the protocol, written from their specifications alone.
//
//	rheos VERSION HOST:PORT pub TOPIC COUNT    create the topic, publish "0", "1", ... and leave
//	rheos VERSION HOST:PORT sub TOPIC COUNT    print "ready", then COUNT messages, one a line
package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"strconv"
)

const (
	create = iota
	subscribe
	publish
)

type client struct {
	version int
	id      [16]byte
	socket  net.Conn
	reader  *bufio.Reader
	waiting []string // messages that came before an acknowledgment
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "rheos:", err)
		os.Exit(1)
	}
}

func (c *client) request(opcode byte, name string, data string) {
	var body bytes.Buffer
	put := func(value any) { check(binary.Write(&body, binary.LittleEndian, value)) }
	put(uint16(len(name)))
	if c.version == 1 {
		body.WriteString(name)
		put(uint16(len(data)))
	} else {
		put(uint32(len(data)))
		body.WriteString(name)
	}
	body.WriteString(data)
	packet := []byte{0xFA}
	packet = binary.LittleEndian.AppendUint32(packet, uint32(body.Len()))
	packet = append(packet, c.id[:]...)
	packet = append(packet, opcode)
	packet = append(packet, body.Bytes()...)
	if c.version == 2 {
		packet = binary.LittleEndian.AppendUint32(packet, crc32.ChecksumIEEE(packet))
	}
	_, err := c.socket.Write(packet)
	check(err)
}

func (c *client) read(size int) []byte {
	data := make([]byte, size)
	_, err := io.ReadFull(c.reader, data)
	check(err)
	return data
}

// packet reads the next packet: an acknowledgment, or a message.
func (c *client) packet() (isAck bool, code byte, message string) {
	first := c.read(1)[0]
	switch {
	case first == 0xAC && c.version == 1:
		return true, c.read(17)[16], ""
	case first == 0xAC:
		rest := append([]byte{first}, c.read(21)...)
		if crc32.ChecksumIEEE(rest[:18]) != binary.LittleEndian.Uint32(rest[18:]) {
			check(fmt.Errorf("an acknowledgment with a wrong checksum"))
		}
		return true, rest[1], ""
	case first == 21 && c.version == 1:
		header := c.read(20)
		return false, 0, string(c.read(int(binary.LittleEndian.Uint32(header))))
	case first == 0xFA && c.version == 2:
		header := append([]byte{first}, c.read(21)...)
		body := c.read(int(binary.LittleEndian.Uint32(header[1:])))
		checksum := binary.LittleEndian.Uint32(c.read(4))
		if crc32.ChecksumIEEE(append(header, body...)) != checksum || header[21] != publish {
			check(fmt.Errorf("an event that is damaged"))
		}
		return false, 0, string(body[6+int(binary.LittleEndian.Uint16(body)):])
	}
	check(fmt.Errorf("a packet that starts with %#x", first))
	return
}

func (c *client) acknowledged() bool {
	for {
		isAck, code, message := c.packet()
		if isAck {
			return code == 0
		}
		c.waiting = append(c.waiting, message)
	}
}

func main() {
	socket, err := net.Dial("tcp", os.Args[2])
	check(err)
	topic := os.Args[4]
	count, err := strconv.Atoi(os.Args[5])
	check(err)
	c := &client{socket: socket, reader: bufio.NewReader(socket)}
	c.version, err = strconv.Atoi(os.Args[1])
	check(err)
	_, err = rand.Read(c.id[:])
	check(err)
	c.id[6], c.id[8] = c.id[6]&0x0F|0x40, c.id[8]&0x3F|0x80
	c.request(create, topic, "")
	c.acknowledged() // FAILED if the topic exists already
	if os.Args[3] == "pub" {
		for number := range count {
			c.request(publish, topic, strconv.Itoa(number))
		}
		for range count {
			if !c.acknowledged() {
				check(fmt.Errorf("a message was refused"))
			}
		}
		return
	}
	c.request(subscribe, topic, "")
	if !c.acknowledged() {
		check(fmt.Errorf("the subscription was refused"))
	}
	fmt.Println("ready")
	for number := 0; number < count; number++ {
		if len(c.waiting) > 0 {
			fmt.Println(c.waiting[0])
			c.waiting = c.waiting[1:]
			continue
		}
		_, _, message := c.packet()
		fmt.Println(message)
	}
}
