//! A small HTTP/1.1 client that speaks to this machine alone: one request a connection, no redirects, no proxies, no
//! encryption. An address is checked before anything is sent, and `localhost` is not looked up but taken at its meaning, so
//! that no resolver can point it elsewhere. Knows no API.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Largest body that is read.
const LARGEST_BODY: u64 = 64 << 20;

/// Most bytes of status line and headers.
const LARGEST_HEAD: u64 = 64 << 10;

/// How long a connection may take to come about. It goes nowhere but to this machine.
const CONNECTING: Duration = Duration::from_secs(5);

/// Why a server could not be used, or gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The address can't be read.
    #[error(
        "{url} is no address of a server: {reason}\nhint: give one such as http://127.0.0.1:8080"
    )]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The address is of another machine, or may be.
    #[error(
        "{host} is not this machine, and a trace never leaves it\nhint: only 127.0.0.0/8, [::1] and localhost are allowed"
    )]
    NotLoopback {
        /// The host.
        host: String,
    },
    /// Nobody listens there.
    #[error(
        "no server answers at {address}: {reason}\nhint: start it first, and see that the port is the same"
    )]
    Connect {
        /// The address.
        address: String,
        /// What the operating system said.
        reason: String,
    },
    /// The answer did not come in time.
    #[error("the server did not answer within {seconds} s")]
    Timeout {
        /// How long was waited.
        seconds: u64,
    },
    /// The connection broke.
    #[error("the connection to the server broke: {0}")]
    Broken(String),
    /// The server refused.
    #[error("the server answered with status {status}: {body}")]
    Status {
        /// The status.
        status: u16,
        /// The beginning of what it said.
        body: String,
    },
    /// The answer is no HTTP, or was cut off.
    #[error("the server's answer can't be read: {0}")]
    Malformed(String),
    /// The answer is not what the API promises.
    #[error("the server's answer is not what was expected: {0}")]
    Unexpected(String),
}

/// A server on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    /// As it was written, for the `Host` header.
    authority: String,
    /// What stands before every path, without a slash at its end.
    prefix: String,
    timeout: Duration,
}

impl Server {
    /// Reads an address such as `http://127.0.0.1:8080`, with a path before all others if need be.
    ///
    /// # Errors
    /// [`PeerError::Address`] and [`PeerError::NotLoopback`].
    pub fn parse(url: &str, timeout: Duration) -> Result<Server, PeerError> {
        let wrong = |reason| PeerError::Address {
            url: url.into(),
            reason,
        };
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return Err(wrong("only plain http is spoken on loopback")),
            None => url,
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if !url.is_ascii() || url.contains(|c: char| c.is_control() || c == ' ') {
            return Err(wrong("it has characters that no address has"));
        }
        if authority.contains(['@', '?', '#', '\\']) || path.contains(['?', '#']) {
            return Err(wrong("it has parts besides host, port and path"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or(wrong("a bracket is open"))?;
                (host, rest)
            }
            None => match authority.find(':') {
                Some(at) => authority.split_at(at),
                None => (authority, ""),
            },
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| wrong("its port is no number"))?,
            None if port.is_empty() => 80u16,
            None => return Err(wrong("its port can't be read")),
        };
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        let hosts: Vec<IpAddr> = match host.parse::<IpAddr>() {
            Ok(host) if host.is_loopback() => vec![host],
            Err(_) if host.eq_ignore_ascii_case("localhost") => {
                vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
            }
            _ => return Err(PeerError::NotLoopback { host: host.into() }),
        };
        Ok(Server {
            addresses: hosts
                .into_iter()
                .map(|host| SocketAddr::new(host, port))
                .collect(),
            authority: authority.into(),
            prefix: path.trim_end_matches('/').into(),
            timeout,
        })
    }

    /// Whether anybody listens there.
    ///
    /// # Errors
    /// [`PeerError::Connect`].
    pub fn reach(&self) -> Result<(), PeerError> {
        self.connect().map(drop)
    }

    /// Posts a JSON body and returns that of the answer.
    ///
    /// # Errors
    /// Any [`PeerError`] but those of addresses.
    pub fn post(&self, path: &str, body: &[u8]) -> Result<Vec<u8>, PeerError> {
        let deadline = Instant::now() + self.timeout;
        let mut stream = self.connect()?;
        let head = format!(
            "POST {}{path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Accept: application/json\r\nConnection: close\r\n\r\n",
            self.prefix,
            self.authority,
            body.len()
        );
        let sent = stream
            .set_write_timeout(Some(self.timeout))
            .and_then(|()| stream.write_all(head.as_bytes()))
            .and_then(|()| stream.write_all(body))
            .and_then(|()| stream.flush());
        sent.map_err(|error| self.failure(&error))?;
        let reader = BufReader::new(Deadline { stream, deadline });
        let (status, body) = answer(reader).map_err(|error| match error {
            Reading::Io(error) => self.failure(&error),
            Reading::Malformed(reason) => PeerError::Malformed(reason),
        })?;
        match status {
            200..300 => Ok(body),
            _ => Err(PeerError::Status {
                status,
                body: beginning(&body),
            }),
        }
    }

    fn connect(&self) -> Result<TcpStream, PeerError> {
        let mut reason = String::new();
        for address in &self.addresses {
            match TcpStream::connect_timeout(address, CONNECTING) {
                Ok(stream) => return Ok(stream),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(PeerError::Connect {
            address: self.authority.clone(),
            reason,
        })
    }

    fn failure(&self, error: &std::io::Error) -> PeerError {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => PeerError::Timeout {
                seconds: self.timeout.as_secs(),
            },
            _ => PeerError::Broken(error.to_string()),
        }
    }
}

/// The beginning of a body, for a message: without control characters.
pub fn beginning(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(800)]);
    let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
    if text.is_empty() {
        "nothing".into()
    } else {
        text
    }
}

/// A stream whose every read ends at the deadline, however slowly bytes drip in.
struct Deadline {
    stream: TcpStream,
    deadline: Instant,
}

impl Read for Deadline {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

enum Reading {
    Io(std::io::Error),
    Malformed(String),
}

impl From<std::io::Error> for Reading {
    fn from(error: std::io::Error) -> Reading {
        Reading::Io(error)
    }
}

fn malformed(reason: &str) -> Reading {
    Reading::Malformed(reason.into())
}

/// Reads an answer: status and body.
fn answer(mut reader: impl BufRead) -> Result<(u16, Vec<u8>), Reading> {
    let mut left = LARGEST_HEAD;
    loop {
        let first = line(&mut reader, &mut left)?;
        let status = first
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.split(' ').nth(1))
            .and_then(|status| status.parse::<u16>().ok())
            .ok_or_else(|| malformed("it does not begin as HTTP does"))?;
        let (mut length, mut chunked) = (None, false);
        loop {
            let header = line(&mut reader, &mut left)?;
            if header.is_empty() {
                break;
            }
            let Some((name, value)) = header.split_once(':') else {
                return Err(malformed("a header has no colon"));
            };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                let value = value.parse::<u64>();
                length = Some(value.map_err(|_| malformed("its length is no number"))?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.eq_ignore_ascii_case("chunked");
            }
        }
        // What comes before the answer proper has no body.
        if (100..200).contains(&status) {
            continue;
        }
        let mut body = Vec::new();
        match length {
            _ if chunked => chunks(&mut reader, &mut body)?,
            Some(length) => take(&mut reader, length, &mut body)?,
            None => {
                let read = reader.take(LARGEST_BODY + 1).read_to_end(&mut body)?;
                if read as u64 > LARGEST_BODY {
                    return Err(malformed("its body is too large"));
                }
            }
        }
        return Ok((status, body));
    }
}

/// A line without its end, within what is left for lines.
fn line(reader: &mut impl BufRead, left: &mut u64) -> Result<String, Reading> {
    let mut bytes = Vec::new();
    let read = reader.by_ref().take(*left).read_until(b'\n', &mut bytes)?;
    *left -= read as u64;
    if bytes.pop() != Some(b'\n') {
        return Err(malformed("it ends within a line, or has a very long one"));
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    String::from_utf8(bytes).map_err(|_| malformed("a line is not UTF-8"))
}

/// Appends exactly so many bytes.
fn take(reader: &mut impl BufRead, length: u64, body: &mut Vec<u8>) -> Result<(), Reading> {
    if length > LARGEST_BODY.saturating_sub(body.len() as u64) {
        return Err(malformed("its body is too large"));
    }
    let read = reader.take(length).read_to_end(body)?;
    match read as u64 == length {
        true => Ok(()),
        false => Err(malformed("its body ends early")),
    }
}

fn chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> Result<(), Reading> {
    loop {
        let mut left = LARGEST_HEAD;
        let head = line(reader, &mut left)?;
        let size = head.split(';').next().unwrap_or("").trim();
        let size = u64::from_str_radix(size, 16);
        let size = size.map_err(|_| malformed("the length of a chunk is no number"))?;
        if size == 0 {
            // Trailers may follow, and are nobody's concern.
            return Ok(());
        }
        take(reader, size, body)?;
        if !line(reader, &mut left)?.is_empty() {
            return Err(malformed("a chunk is longer than it says"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_spoken_to() {
        let parse = |url: &str| Server::parse(url, Duration::from_secs(1));
        let check = |url: &str, addresses: &[&str], prefix: &str| {
            let server = parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            let found = server.addresses.iter().map(SocketAddr::to_string);
            let found = found.collect::<Vec<_>>();
            assert_eq!(
                (found.join(" "), &*server.prefix),
                (addresses.join(" "), prefix)
            );
        };
        check("http://127.0.0.1:8080", &["127.0.0.1:8080"], "");
        check("127.9.8.7:1/", &["127.9.8.7:1"], "");
        check("http://[::1]:8080/v1/", &["[::1]:8080"], "/v1");
        check("http://localhost", &["127.0.0.1:80", "[::1]:80"], "");
        for url in [
            "http://128.0.0.1:8080",
            "http://0.0.0.0:8080",
            "http://10.0.0.1",
            "http://example.com",
            "http://localhost.example.com",
            "http://127.0.0.1.example.com",
            "http://[::2]:8080",
            "http://[::ffff:10.0.0.1]:8080",
            "http://2130706433",
            "http://0x7f.1",
        ] {
            let error = parse(url).unwrap_err();
            assert!(
                matches!(error, PeerError::NotLoopback { .. }),
                "{url}: {error}"
            );
        }
        for url in [
            "https://127.0.0.1",
            "ftp://127.0.0.1",
            "http://127.0.0.1@example.com",
            "http://example.com\\@127.0.0.1",
            "http://127.0.0.1:80:80",
            "http://127.0.0.1:99999",
            "http://127.0.0.1:x",
            "http://[::1",
            "http://[::1]x",
            "http://",
            "http://127.0.0.1/a b",
            "http://127.0.0.1/\r\nX: y",
            "http://127.0.0.1/?a=b",
        ] {
            let error = parse(url).unwrap_err();
            assert!(matches!(error, PeerError::Address { .. }), "{url}: {error}");
        }
    }

    #[test]
    fn answers_of_all_kinds() {
        let read = |text: &str| match answer(text.as_bytes()) {
            Ok((status, body)) => Ok((status, String::from_utf8(body).unwrap())),
            Err(Reading::Malformed(reason)) => Err(reason),
            Err(Reading::Io(error)) => panic!("{error}"),
        };
        let check = |text: &str, status: u16, body: &str| {
            assert_eq!(read(text), Ok((status, body.to_owned())), "{text:?}");
        };
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello",
            200,
            "he",
        );
        check("HTTP/1.0 200 OK\n\nhello", 200, "hello");
        check("HTTP/1.1 500 Oh no\r\ncontent-length:0\r\n\r\n", 500, "");
        check(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
            204,
            "",
        );
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        check(chunked, 200, "abcde");
        for text in [
            "",
            "garbage",
            "garbage\r\n\r\n",
            "HTTP/1.1 abc\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(1 << 17));
        assert!(read(&endless).is_err());
    }
}
