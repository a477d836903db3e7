//! Measures the server over loopback TCP, with a file system in memory behind it and the client on
//! the same machine: `cargo run --release -p forebay-nfs --example load [seconds a figure]`.
//!
//! One connection keeps `depth` calls in flight.
#![allow(clippy::print_stdout, reason = "figures are for standard output")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_nfs::record::mark;
use forebay_nfs::xdr::{Reader, Writer};
use forebay_nfs::{AddressRange, Export, Limits, Rule, Server, ServerConfig, SourcePort, Squash};
use forebay_types::VolumeId;
use forebay_vfs::memory::MemoryFileSystem;

type Failure = Box<dyn std::error::Error>;

/// Bytes of the file that READ and WRITE work on.
const FILE_BYTES: u64 = 64 << 20;
const MIB: u32 = 1 << 20;

fn main() -> Result<(), Failure> {
    let seconds = std::env::args()
        .nth(1)
        .map(|text| text.parse())
        .transpose()?;
    let time = Duration::from_secs_f64(seconds.unwrap_or(2.0));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let config = ServerConfig {
        handle_key: [1; 32],
        volume: VolumeId([2; 16]),
        exports: vec![Export {
            id: 1,
            path: b"/".to_vec(),
            rules: vec![Rule {
                clients: vec![AddressRange::ANY_V4],
                squash: Squash::None,
                source_port: SourcePort::Any,
                ..Rule::default()
            }],
        }],
        limits: Limits::default(),
    };
    let fs = Arc::new(MemoryFileSystem::new());
    let server = runtime.block_on(Server::bind("127.0.0.1:0".parse()?, fs, config))?;
    let address = server.local_addr()?;
    runtime.spawn(server.serve(std::future::pending()));

    let mut client = Client::new(TcpStream::connect(address)?)?;
    let mounted = client.once(100_005, 1, |w| w.opaque(b"/"))?;
    let root = Reader::new(mounted.get(28..).unwrap_or_default())
        .opaque(64)?
        .to_vec();
    let created = client.once(100_003, 8, |w| {
        w.opaque(&root);
        w.opaque(b"file");
        (0..7).for_each(|_| w.u32(0));
    })?;
    let file = Reader::new(created.get(32..).unwrap_or_default())
        .opaque(64)?
        .to_vec();
    let data = vec![0x5a; MIB as usize];
    let write = |w: &mut Writer, offset: u64, count: u32| {
        w.opaque(&file);
        w.u64(offset);
        w.u32(count);
        w.u32(0);
        w.opaque(data.get(..count as usize).unwrap_or_default());
    };
    let read = |w: &mut Writer, offset: u64, count: u32| {
        w.opaque(&file);
        w.u64(offset);
        w.u32(count);
    };
    let mut random = 1_u64;
    let mut offset_of = move |count: u32| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 20) % (FILE_BYTES / u64::from(count)) * u64::from(count)
    };
    for offset in (0..FILE_BYTES).step_by(MIB as usize) {
        client.once(100_003, 7, |w| write(w, offset, MIB))?;
    }

    let show = |what: &str, figure: Figure| {
        let Figure { rate, cpu } = figure;
        println!(
            "{what:14} {:7.1} thousand a second, {:5.2} us of server CPU each",
            rate / 1e3,
            cpu * 1e6
        );
    };
    let show_bytes = |what: &str, figure: Figure| {
        let bytes = f64::from(MIB);
        let (rate, cpu) = (figure.rate * bytes / 1e6, figure.cpu / bytes * 1e9);
        println!("{what:14} {rate:7.0} MB/s, {cpu:5.2} s of server CPU a GB");
    };
    show(
        "GETATTR",
        client.measure(time, 32, 1, |w, _| w.opaque(&root))?,
    );
    let figure = client.measure(time, 32, 6, |w, _| read(w, offset_of(4096), 4096))?;
    show("READ 4 KiB", figure);
    let figure = client.measure(time, 32, 7, |w, _| write(w, offset_of(4096), 4096))?;
    show("WRITE 4 KiB", figure);
    let figure = client.measure(time, 32, 8, |w, number| {
        w.opaque(&root);
        w.opaque(format!("f{number}").as_bytes());
        (0..7).for_each(|_| w.u32(0));
    })?;
    show("CREATE", figure);
    let figure = client.measure(time, 8, 6, |w, _| read(w, offset_of(MIB), MIB))?;
    show_bytes("READ 1 MiB", figure);
    let figure = client.measure(time, 8, 7, |w, _| write(w, offset_of(MIB), MIB))?;
    show_bytes("WRITE 1 MiB", figure);
    runtime.shutdown_background();
    Ok(())
}

/// A measurement.
struct Figure {
    /// Calls per second.
    rate: f64,
    /// Processor seconds of the server's threads per call.
    cpu: f64,
}

/// Seconds of processor that the threads of the server have used (Linux: in hundredths).
fn server_cpu() -> Result<f64, Failure> {
    let mut hundredths = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(task?.path().join("stat"))?;
        let (head, fields) = stat.rsplit_once(')').ok_or("unknown format of stat")?;
        if head.contains("tokio") {
            // User and system time are fields 14 and 15; the command's name was field 2.
            let times = fields.split_whitespace().skip(11).take(2);
            for time in times {
                hundredths += time.parse::<u64>()?;
            }
        }
    }
    Ok(hundredths as f64 / 100.0)
}

/// A connection that decodes only the necessary parts of a reply.
struct Client {
    stream: TcpStream,
    xid: u32,
    out: Vec<u8>,
    buffer: Vec<u8>,
    /// Bytes of the current reply that have not arrived.
    remaining: usize,
    mark: Vec<u8>,
}

impl Client {
    fn new(stream: TcpStream) -> Result<Client, Failure> {
        stream.set_nodelay(true)?;
        Ok(Client {
            stream,
            xid: std::process::id() << 12,
            out: Vec::new(),
            buffer: vec![0; 256 << 10],
            remaining: 0,
            mark: Vec::new(),
        })
    }

    /// Appends a call to the send buffer.
    fn put(&mut self, program: u32, procedure: u32, arguments: impl FnOnce(&mut Writer)) {
        let begin = self.out.len();
        self.xid = self.xid.wrapping_add(1);
        let mut writer = Writer::new(&mut self.out);
        // AUTH_SYS as root: stamp, no name, uid, gid, no groups; no verifier.
        for value in [
            0, self.xid, 0, 2, program, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0,
        ] {
            writer.u32(value);
        }
        arguments(&mut writer);
        let length = self.out.len() - begin - 4;
        if let Some(to) = self.out.get_mut(begin..begin + 4) {
            to.copy_from_slice(&mark(length));
        }
    }

    /// One call, and its reply.
    fn once(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
    ) -> Result<Vec<u8>, Failure> {
        self.put(program, procedure, arguments);
        self.stream.write_all(&self.out)?;
        self.out.clear();
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut reply)?;
        if reply.get(20..28) != Some(&[0; 8]) {
            return Err("a call failed".into());
        }
        Ok(reply)
    }

    /// Reads once, and returns how many replies were completed.
    fn receive(&mut self) -> Result<usize, Failure> {
        let count = self.stream.read(&mut self.buffer)?;
        let mut input = self.buffer.get(..count).unwrap_or_default();
        if input.is_empty() {
            return Err("the server has closed the connection".into());
        }
        let mut replies = 0;
        while !input.is_empty() {
            if self.remaining == 0 {
                let (piece, rest) = input.split_at((4 - self.mark.len()).min(input.len()));
                self.mark.extend_from_slice(piece);
                input = rest;
                if let Ok(mark) = <[u8; 4]>::try_from(self.mark.as_slice()) {
                    self.remaining = (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize;
                    self.mark.clear();
                }
                continue;
            }
            let taken = self.remaining.min(input.len());
            (_, input) = input.split_at(taken);
            self.remaining -= taken;
            replies += usize::from(self.remaining == 0);
        }
        Ok(replies)
    }

    /// Makes calls, with `depth` of them in flight.
    fn measure(
        &mut self,
        time: Duration,
        depth: usize,
        procedure: u32,
        mut arguments: impl FnMut(&mut Writer, u64) + Send,
    ) -> Result<Figure, Failure> {
        let cpu = server_cpu()?;
        let (mut sent, mut answered) = (0_u64, 0_u64);
        let begin = Instant::now();
        loop {
            let running = begin.elapsed() < time;
            while running && sent - answered < depth as u64 {
                self.put(100_003, procedure, |w| arguments(w, sent));
                sent += 1;
                // A large call is sent at once: with more of them queued, both sides would wait for each other.
                if self.out.len() > 1 << 20 {
                    break;
                }
            }
            if sent == answered {
                return Ok(Figure {
                    rate: answered as f64 / begin.elapsed().as_secs_f64(),
                    cpu: (server_cpu()? - cpu) / answered as f64,
                });
            }
            self.stream.write_all(&self.out)?;
            self.out.clear();
            answered += self.receive()? as u64;
        }
    }
}
