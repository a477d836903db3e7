//! A proxy in front of an S3 server that injects the faults of networks, balancers and servers.
//!
//! It speaks only as much HTTP/1.1 as it needs: a request is read completely, sent on over a connection of its own, and
//! the answer read until the server closes. The signed headers are unchanged, `Host` among them, so that the server
//! accepts the forwarded requests.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A fault injected into a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// 500 with S3's XML; the server does not get the request.
    ServerError,
    /// 503 `SlowDown` with `Retry-After: 1`; the server does not get the request.
    SlowDown,
    /// The request is read, and never answered.
    Stall,
    /// The connection is reset while the request arrives.
    ResetRequest,
    /// The server executes the request; the connection ends before the answer.
    ResetAnswer,
    /// The body ends after half of its announced length.
    CutShort,
    /// One bit of the body is flipped; only for objects.
    WrongBytes,
    /// The server executes the request, and the answer is a 500.
    LostAnswer,
    /// A listing repeats an earlier one.
    StaleList,
    /// 403 `AccessDenied` to a PUT; the server does not get the request, as with the next three.
    Denied,
    /// A PUT exceeds a quota.
    QuotaUsedUp,
    /// 507 to a PUT.
    Full,
    /// The credentials of a PUT have expired.
    Expired,
}

/// Status and code of an answer for which the server does not get the request.
fn refusal(fault: Fault) -> Option<(u16, &'static str)> {
    Some(match fault {
        Fault::ServerError => (500, "InternalError"),
        Fault::SlowDown => (503, "SlowDown"),
        Fault::Denied => (403, "AccessDenied"),
        Fault::QuotaUsedUp => (400, "XMinioAdminBucketQuotaExceeded"),
        Fault::Full => (507, "XMinioStorageFull"),
        Fault::Expired => (400, "ExpiredToken"),
        _ => return None,
    })
}

impl Fault {
    fn applies_to(self, request: &Request) -> bool {
        let lists = request.target.contains("list-type=2");
        match self {
            Fault::CutShort | Fault::WrongBytes => request.method == "GET" && !lists,
            Fault::LostAnswer | Fault::ResetAnswer => {
                matches!(&*request.method, "PUT" | "DELETE" | "POST")
            }
            Fault::StaleList => lists,
            Fault::Denied | Fault::QuotaUsedUp | Fault::Full | Fault::Expired => {
                request.method == "PUT"
            }
            _ => true,
        }
    }
}

/// How the proxy treats connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Normally.
    Open,
    /// Connections are closed at once.
    Refused,
    /// Connections are accepted and never answered.
    Silent,
}

/// A running proxy; ends when dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: String,
    ended: AtomicBool,
    requests: AtomicUsize,
    answered: Mutex<Vec<Answered>>,
    plan: Mutex<Plan>,
}

/// A request that was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Bytes of its body.
    pub(crate) sent: u64,
    /// Bytes of the body of the answer, as its head promises them.
    pub(crate) received: u64,
}

struct Plan {
    reach: Reach,
    random: u64,
    /// Kinds of faults, each for one in this number of the requests that it applies to.
    one_in: Vec<(Fault, u64)>,
    /// Faults for the next requests with this method and this part of the target, once each.
    script: Vec<(&'static str, &'static str, Fault)>,
    injected: HashMap<Fault, usize>,
    listings: HashMap<String, Vec<u8>>,
}

impl Proxy {
    /// Starts a proxy for the server at `http://` and this address.
    pub(crate) fn start(endpoint: &str, seed: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server: endpoint.trim_start_matches("http://").to_owned(),
            ended: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            answered: Mutex::default(),
            plan: Mutex::new(Plan {
                reach: Reach::Open,
                random: seed,
                one_in: Vec::new(),
                script: Vec::new(),
                injected: HashMap::new(),
                listings: HashMap::new(),
            }),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if serving.ended.load(Ordering::SeqCst) {
                    return;
                }
                serving.requests.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(&serving);
                thread::spawn(move || {
                    // A broken connection is not reported: breaking connections is the purpose.
                    let _ = shared.serve(client);
                });
            }
        });
        Proxy { address, shared }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Hits one in `of` requests to which the fault applies.
    pub(crate) fn one_in(&self, of: u64, fault: Fault) {
        self.shared.plan.lock().unwrap().one_in.push((fault, of));
    }

    /// Hits the next request with this method and with `part` in its target.
    pub(crate) fn next(&self, method: &'static str, part: &'static str, fault: Fault) {
        let mut plan = self.shared.plan.lock().unwrap();
        plan.script.push((method, part, fault));
    }

    pub(crate) fn reach(&self, reach: Reach) {
        self.shared.plan.lock().unwrap().reach = reach;
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        let mut plan = self.shared.plan.lock().unwrap();
        plan.reach = Reach::Open;
        plan.one_in.clear();
        plan.script.clear();
    }

    /// Number of times a fault was injected.
    pub(crate) fn injected(&self, fault: Fault) -> usize {
        let plan = self.shared.plan.lock().unwrap();
        plan.injected.get(&fault).copied().unwrap_or(0)
    }

    /// The requests that were answered so far.
    pub(crate) fn answered(&self) -> Vec<Answered> {
        self.shared.answered.lock().unwrap().clone()
    }

    /// Number of connections so far, one for each request.
    pub(crate) fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

/// A received request.
struct Request {
    method: String,
    target: String,
    head: String,
    body: Vec<u8>,
}

/// Longer than the program waits for any answer.
const TIMEOUT: Duration = Duration::from_secs(120);

impl Shared {
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        client.set_read_timeout(Some(TIMEOUT))?;
        let reach = self.plan.lock().unwrap().reach;
        match reach {
            Reach::Open => {}
            Reach::Refused => return Ok(()),
            Reach::Silent => return hold(&mut client),
        }
        let (head, rest) = read_head(&mut client)?;
        let mut words = head.split(' ');
        let mut request = Request {
            method: words.next().unwrap_or_default().to_owned(),
            target: words.next().unwrap_or_default().to_owned(),
            head: String::new(),
            body: rest,
        };
        let fault = self.draw(&request);
        let mut len = 0;
        for line in head.split("\r\n") {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            match &*name.to_ascii_lowercase() {
                "content-length" => len = value.trim().parse().unwrap_or(0),
                // Answered here, before the body arrives.
                "expect" if fault != Some(Fault::ResetRequest) => {
                    client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                    continue;
                }
                "connection" | "expect" => continue,
                _ => {}
            }
            if !line.is_empty() {
                request.head.push_str(line);
                request.head.push_str("\r\n");
            }
        }
        if fault == Some(Fault::ResetRequest) {
            // Received bytes that are not read turn the end of the connection into a reset.
            thread::sleep(Duration::from_millis(2));
            return Ok(());
        }
        let missing = len - request.body.len().min(len);
        let begun = request.body.len();
        request.body.resize(begun + missing, 0);
        client.read_exact(&mut request.body[begun..])?;
        if let Some((status, code)) = fault.and_then(refusal) {
            return refuse(&mut client, status, code);
        }
        if fault == Some(Fault::Stall) {
            return hold(&mut client);
        }
        let answer = self.forward(&request)?;
        let body_at = end_of_head(&answer).unwrap_or(answer.len());
        let mut answer = answer;
        match fault {
            Some(Fault::ResetAnswer) => return Ok(()),
            Some(Fault::LostAnswer) => return refuse(&mut client, 500, "InternalError"),
            Some(Fault::CutShort) => answer.truncate(body_at + (answer.len() - body_at) / 2),
            Some(Fault::WrongBytes) => {
                let at = body_at + (answer.len() - body_at) / 3;
                if let Some(byte) = answer.get_mut(at) {
                    *byte ^= 4;
                }
            }
            _ => {}
        }
        if request.target.contains("list-type=2") {
            let mut plan = self.plan.lock().unwrap();
            let earlier = plan.listings.get(&request.target).cloned();
            match earlier.filter(|_| fault == Some(Fault::StaleList)) {
                Some(earlier) => answer = earlier,
                None => {
                    plan.listings.insert(request.target.clone(), answer.clone());
                }
            }
        }
        self.answered.lock().unwrap().push(Answered {
            method: request.method,
            target: request.target,
            sent: request.body.len() as u64,
            received: promised(&answer[..body_at]),
        });
        client.write_all(&answer)
    }

    fn draw(&self, request: &Request) -> Option<Fault> {
        let mut plan = self.plan.lock().unwrap();
        let scripted = plan.script.iter().position(|(method, part, _)| {
            request.method == *method && request.target.contains(part)
        });
        let fault = match scripted {
            Some(at) => Some(plan.script.remove(at).2),
            None => {
                plan.random = mix(plan.random);
                let drawn = plan.random;
                let applying = plan
                    .one_in
                    .iter()
                    .filter(|(fault, _)| fault.applies_to(request));
                // Independent random bits for each kind, so that one does not hide another.
                applying
                    .enumerate()
                    .find(|(at, (_, of))| mix(drawn ^ *at as u64).is_multiple_of(*of))
                    .map(|(_, (fault, _))| *fault)
            }
        };
        if let Some(fault) = fault {
            *plan.injected.entry(fault).or_default() += 1;
        }
        fault
    }

    fn forward(&self, request: &Request) -> io::Result<Vec<u8>> {
        let mut server = TcpStream::connect(&self.server)?;
        server.set_nodelay(true)?;
        server.set_read_timeout(Some(TIMEOUT))?;
        server.write_all(request.head.as_bytes())?;
        server.write_all(b"Connection: close\r\n\r\n")?;
        // If the server refuses the rest of the body, its answer says why.
        let _ = server.write_all(&request.body);
        let mut answer = Vec::new();
        match server.read_to_end(&mut answer) {
            // A server that refuses before reading everything resets the connection after its answer.
            Err(error) if answer.is_empty() => Err(error),
            _ => Ok(answer),
        }
    }
}

/// Stays silent until the peer gives up.
fn hold(client: &mut TcpStream) -> io::Result<()> {
    let mut sink = [0; 4096];
    while client.read(&mut sink)? > 0 {}
    Ok(())
}

fn refuse(client: &mut TcpStream, status: u16, code: &str) -> io::Result<()> {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code>\
         <Message>Please try again.</Message></Error>"
    );
    let answer = format!(
        "HTTP/1.1 {status} Fault\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\
         Retry-After: 1\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    client.write_all(answer.as_bytes())
}

/// A head without its last empty line, and the part of the body that arrived with it.
fn read_head(client: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(end) = end_of_head(&bytes) {
            let rest = bytes.split_off(end);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), rest));
        }
        match client.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => bytes.extend_from_slice(&piece[..len]),
        }
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let at = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(at + 4)
}

/// Bytes of the body that a head promises.
fn promised(head: &[u8]) -> u64 {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let length = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    length.map_or(0, |(_, length)| length.trim().parse().unwrap_or(0))
}

/// splitmix64.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
