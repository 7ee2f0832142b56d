// A LamaMQ client in network byte order, written from the specification alone.
//
//   lamamq HOST:PORT pub TOPIC COUNT    push "0", "1", ... with a header and leave
//   lamamq HOST:PORT sub TOPIC COUNT    print "ready", then COUNT messages, one a line
use std::env;
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

type Fallible<T> = Result<T, Box<dyn Error>>;

const PUSH: u8 = 0;
const FORWARD: u8 = 1;
const SUBSCRIBE: u8 = 32;

struct Client {
    socket: TcpStream,
    next_id: u32,
}

fn put_string(to: &mut Vec<u8>, text: &[u8]) {
    to.extend((text.len() as u32).to_be_bytes());
    to.extend(text);
}

impl Client {
    fn connect(place: &str) -> Fallible<Client> {
        let mut client = Client { socket: TcpStream::connect(place)?, next_id: 1 };
        // One field after the other, as a client that is not in a hurry sends them.
        client.socket.set_nodelay(true)?;
        client.socket.write_all(&[0])?;
        let mut name = Vec::new();
        put_string(&mut name, b"foreign");
        client.socket.write_all(&name)?;
        let mut key = Vec::new();
        put_string(&mut key, b"k3y");
        client.socket.write_all(&key)?;
        let offer = client.read(4)?;
        if offer[2..4] > [1, 0][..] || offer[0..2] < [1, 0][..] {
            return Err("version 1.0 is not offered".into());
        }
        client.socket.write_all(&[1, 0])?;
        Ok(client)
    }

    fn read(&mut self, size: usize) -> Fallible<Vec<u8>> {
        let mut data = vec![0; size];
        self.socket.read_exact(&mut data)?;
        Ok(data)
    }

    fn read_u32(&mut self) -> Fallible<u32> {
        let data = self.read(4)?;
        Ok(u32::from_be_bytes([data[0], data[1], data[2], data[3]]))
    }

    fn read_string(&mut self) -> Fallible<Vec<u8>> {
        let size = self.read_u32()? as usize;
        self.read(size)
    }

    fn header(&mut self, kind: u8) -> Vec<u8> {
        let mut packet = self.next_id.to_be_bytes().to_vec();
        packet.push(kind);
        self.next_id += 1;
        packet
    }

    fn expect_answer(&mut self, id: u32) -> Fallible<()> {
        let found = self.read_u32()?;
        let error = self.read(1)?[0];
        if error > 0 {
            let text = String::from_utf8_lossy(&self.read_string()?).into_owned();
            return Err(format!("error {error}: {text}").into());
        }
        if found != id {
            return Err(format!("the answer to {found}, not to {id}").into());
        }
        Ok(())
    }

    fn push(&mut self, topic: &str, payload: &str) -> Fallible<()> {
        let id = self.next_id;
        let mut packet = self.header(PUSH);
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as u32;
        packet.extend(now.to_be_bytes());
        put_string(&mut packet, topic.as_bytes());
        packet.extend(1u16.to_be_bytes());
        put_string(&mut packet, b"made-by");
        put_string(&mut packet, b"rust");
        packet.push(1);
        put_string(&mut packet, payload.as_bytes());
        self.socket.write_all(&packet)?;
        self.expect_answer(id)
    }

    fn subscribe(&mut self, topic: &str) -> Fallible<()> {
        let id = self.next_id;
        let mut packet = self.header(SUBSCRIBE);
        put_string(&mut packet, topic.as_bytes());
        self.socket.write_all(&packet)?;
        self.expect_answer(id)
    }

    /// Return the payload of the next message, and answer it: the broker must not mind.
    fn forwarded(&mut self) -> Fallible<Vec<u8>> {
        let id = self.read(4)?;
        if self.read(1)?[0] != FORWARD {
            return Err("not a forward".into());
        }
        self.read_u32()?; // created at
        self.read_string()?; // routing key
        let headers = self.read(2)?;
        for _ in 0..2 * u16::from_be_bytes([headers[0], headers[1]]) {
            self.read_string()?;
        }
        let payload = if self.read(1)?[0] == 0 { Vec::new() } else { self.read_string()? };
        self.socket.write_all(&[&id[..], &[0]].concat())?;
        Ok(payload)
    }
}

fn main() -> Fallible<()> {
    let words: Vec<String> = env::args().collect();
    if words.len() != 5 {
        return Err("usage: lamamq HOST:PORT pub|sub TOPIC COUNT".into());
    }
    let mut client = Client::connect(&words[1])?;
    let count: u32 = words[4].parse()?;
    if words[2] == "pub" {
        for number in 0..count {
            client.push(&words[3], &number.to_string())?;
        }
        return Ok(());
    }
    client.subscribe(&words[3])?;
    println!("ready");
    for _ in 0..count {
        println!("{}", String::from_utf8(client.forwarded()?)?);
    }
    client.push(&format!("{}/done", words[3]), "done")
}
