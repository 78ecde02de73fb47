//! The real binary, killed and stopped under load, with more bodies than memory, and on a full disk.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use billingd::clock;
use billingd::stripe::signature;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::Value;

use super::fixtures::{merge, nth_invoice_paid};
use super::harness::{PATH, SECRET, Setup, agent, open_outside, rows, violations, wait_until};

/// The binary as a process of its own.
struct Binary {
    child: Child,
    address: SocketAddr,
    /// The lines of its log.
    log: Receiver<Value>,
}

/// Where binaries run one after the other.
struct Machine {
    folder: tempfile::TempDir,
    config: PathBuf,
}

impl Machine {
    fn new(setup: &Setup) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (config, _) = setup.config_in(folder.path());
        Self { folder, config }
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("books.db")
    }

    fn starts(&self) -> Binary {
        self.starts_by(&mut Command::new(env!("CARGO_BIN_EXE_billingd")), &[])
    }

    fn starts_by(&self, command: &mut Command, environment: &[(&str, &str)]) -> Binary {
        command.arg("--config").arg(&self.config).env_clear().envs(environment.iter().copied());
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().expect("a process");
        let stderr = BufReader::new(child.stderr.take().expect("a log"));
        let (line, log) = channel();
        std::thread::spawn(move || {
            for text in stderr.lines().map_while(Result::ok) {
                drop(line.send(serde_json::from_str(&text).unwrap_or(Value::String(text))));
            }
        });
        let ready = said(&log, "billingd is ready");
        let address = ready["listen"].as_str().and_then(|text| text.parse().ok()).expect("an address");
        Binary { child, address, log }
    }

    fn rows(&self, sql: &str) -> Vec<String> {
        rows(&open_outside(&self.database()), sql)
    }

    /// The books of a stopped binary are whole.
    fn is_whole(&self) {
        assert_eq!(self.rows("PRAGMA integrity_check"), ["ok"]);
        assert_eq!(violations(&self.database()), Vec::<String>::new());
    }
}

/// Waits until the log says something; returns that line.
fn said(log: &Receiver<Value>, message: &str) -> Value {
    let mut before = Vec::new();
    loop {
        match log.recv_timeout(Duration::from_secs(60)) {
            Ok(line) if line["message"] == message => return line,
            Ok(line) => before.push(line),
            Err(_) => panic!("the log never said `{message}`, but {before:?}"),
        }
    }
}

impl Binary {
    fn pid(&self) -> Pid {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id")
    }

    fn takes(&self, agent: &ureq::Agent, event: &Value) -> Option<u16> {
        sends(self.address, agent, event)
    }

    fn readiness(&self) -> u16 {
        agent().get(format!("http://{}/readyz", self.address)).call().expect("an answer").status().as_u16()
    }

    fn dies(mut self) {
        self.child.kill().expect("a process to kill");
        self.child.wait().expect("its end");
    }

    fn is_told_to_stop(&self) {
        kill_process(self.pid(), Signal::TERM).expect("a process to stop");
    }

    fn ends(mut self) -> ExitStatus {
        self.child.wait().expect("its end")
    }

    /// The most memory that it ever had, in KiB.
    fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}

/// `None` when no whole answer came.
fn sends(address: SocketAddr, agent: &ureq::Agent, event: &Value) -> Option<u16> {
    let body = event.to_string();
    let signature = signature::sign(SECRET, clock::now() / 1000, body.as_bytes());
    let request = agent.post(format!("http://{address}{PATH}")).header("Stripe-Signature", signature);
    let mut response = request.send(body.as_bytes()).ok()?;
    response.body_mut().read_to_string().ok()?;
    Some(response.status().as_u16())
}

/// A small generator, so that a failed run can be had again by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn what_was_answered_200_survives_every_kill_exactly_once() {
    const KILLS: usize = 5;
    const SENDERS: usize = 6;
    let seed = std::env::var("BILLINGD_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| clock::now().unsigned_abs());
    println!("BILLINGD_TEST_SEED={seed}");
    let mut random = Random(seed);
    let machine = Machine::new(&Setup::new());
    let next = AtomicUsize::new(0);
    let mut acknowledged = BTreeSet::new();
    for _ in 0..KILLS {
        let binary = machine.starts();
        let until = 20 + random.below(200);
        let (answered, answers) = channel();
        std::thread::scope(|scope| {
            for _ in 0..SENDERS {
                let (answered, next, address) = (answered.clone(), &next, binary.address);
                scope.spawn(move || {
                    let agent = agent();
                    loop {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        // Every third is sent twice, as Stripe does.
                        for _ in 0..=usize::from(number % 3 == 0) {
                            let Some(status) = sends(address, &agent, &nth_invoice_paid(number)) else { return };
                            answered.send((number, status)).expect("a test that waits");
                        }
                    }
                });
            }
            drop(answered);
            for _ in 0..until {
                let (number, status) = answers.recv().expect("an answer");
                assert_eq!(status, 200, "evt_{number}");
                acknowledged.insert(number);
            }
            kill_process(binary.pid(), Signal::KILL).expect("a process to kill");
            acknowledged.extend(answers.iter().map(|(number, _)| number));
        });
        binary.dies();
        let kept: BTreeSet<String> = machine.rows("SELECT source_event_id FROM v_ledger").into_iter().collect();
        let lost: Vec<_> = acknowledged.iter().filter(|number| !kept.contains(&format!("evt_{number}"))).collect();
        assert_eq!(lost, Vec::<&usize>::new(), "seed {seed}: answered 200 and not in the books");
        machine.is_whole();
    }
    let all = next.load(Ordering::SeqCst);
    assert!(acknowledged.len() >= 100, "seed {seed}: there was load: {} of {all}", acknowledged.len());
    let binary = machine.starts();
    let agent = agent();
    for number in 0..all {
        assert_eq!(binary.takes(&agent, &nth_invoice_paid(number)), Some(200), "seed {seed}: evt_{number}");
    }
    binary.is_told_to_stop();
    assert_eq!(binary.ends().code(), Some(0));
    let sums = "SELECT count(*), count(DISTINCT fact), sum(amount) FROM v_ledger";
    assert_eq!(machine.rows(sums), [format!("{all}|{all}|{}", all * 2_000)], "seed {seed}");
    assert_eq!(machine.rows("SELECT 1 FROM v_events WHERE status <> 'completed'"), [""; 0]);
    machine.is_whole();
}

#[test]
fn sigterm_lets_what_is_in_flight_finish_and_exits_0_in_time() {
    let grace = Duration::from_secs(10);
    let machine = Machine::new(&Setup::new());
    let mut command = Command::new(env!("CARGO_BIN_EXE_billingd"));
    let binary = machine.starts_by(&mut command, &[("BILLINGD__SERVER__SHUTDOWN_GRACE", "10s")]);
    let lock = open_outside(&machine.database());
    lock.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    let mut flights: Vec<BufReader<TcpStream>> = (0..5)
        .map(|number| {
            let body = nth_invoice_paid(number).to_string();
            let signature = signature::sign(SECRET, clock::now() / 1000, body.as_bytes());
            let stream = TcpStream::connect(binary.address).expect("a connection");
            let mut flight = BufReader::new(stream);
            let head = format!(
                "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nStripe-Signature: {signature}\r\nContent-Length: {}\r\n\
                 Expect: 100-continue\r\n\r\n",
                body.len()
            );
            flight.get_mut().write_all(head.as_bytes()).expect("a head");
            let mut line = String::new();
            flight.read_line(&mut line).expect("a line");
            assert!(line.contains("100"), "the request has arrived: {line}");
            flight.read_line(&mut line).expect("a line");
            flight.get_mut().write_all(body.as_bytes()).expect("a body");
            flight
        })
        .collect();
    let idle = TcpStream::connect(binary.address).expect("a connection that nobody uses");
    binary.is_told_to_stop();
    said(&binary.log, "SIGTERM: finishing what runs");
    drop(lock);
    let began = Instant::now();
    for flight in &mut flights {
        let mut answer = String::new();
        flight.read_line(&mut answer).expect("an answer");
        assert!(answer.contains("200"), "{answer}");
    }
    // The clients keep their connections, as proxies do.
    assert_eq!(binary.ends().code(), Some(0));
    assert!(began.elapsed() < grace, "{:?}", began.elapsed());
    drop((idle, flights));
    assert_eq!(machine.rows("SELECT count(*) FROM v_ledger"), ["5"]);
    assert_eq!(machine.rows("SELECT sum(good) FROM deliveries"), ["5"], "what was answered last is counted, too");
    machine.is_whole();
}

#[test]
fn unsigned_and_slow_bodies_stay_within_their_budget() {
    let machine = Machine::new(&Setup::new());
    let binary = machine.starts();
    let agent = agent();
    assert_eq!(binary.takes(&agent, &nth_invoice_paid(0)), Some(200));
    let before = binary.peak_kib();
    let most = vec![b'x'; (1 << 20) - 100];
    let slow: Vec<TcpStream> = (0..150)
        .map(|_| {
            let mut stream = TcpStream::connect(binary.address).expect("a connection");
            stream.set_write_timeout(Some(Duration::from_secs(2))).expect("a time limit");
            let head = format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", 1 << 20);
            drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&most)));
            stream
        })
        .collect();
    let grown = (binary.peak_kib() - before) / 1_024;
    println!("{} MiB of bodies took {grown} MiB", slow.len());
    assert!(grown < 80, "{grown} MiB");
    drop(slow);
    wait_until("there is room again", || binary.takes(&agent, &nth_invoice_paid(1)) == Some(200));
    binary.is_told_to_stop();
    assert_eq!(binary.ends().code(), Some(0));
    machine.is_whole();
}

/// The limit of the system on the size of a file stands for a full disk: SQLite is told the same by `write`.
#[test]
fn a_full_disk_is_unavailable_and_heals_by_itself() {
    let machine = Machine::new(&Setup::new());
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg("trap '' XFSZ; exec \"$0\" \"$@\"").arg(env!("CARGO_BIN_EXE_billingd"));
    let binary = machine.starts_by(&mut shell, &[]);
    let agent = agent();
    assert_eq!(binary.takes(&agent, &nth_invoice_paid(0)), Some(200));
    let before = getrlimit(Resource::Fsize);
    let wal = std::fs::metadata(machine.database().with_extension("db-wal")).expect("a log").len();
    let full = Rlimit { current: Some(wal + 100), maximum: before.maximum };
    prlimit(Some(binary.pid()), Resource::Fsize, full).expect("a full disk");
    let mut large = nth_invoice_paid(1);
    let mut random = Random(1);
    let noise: String =
        (0..200_000).map(|_| char::from(b'!' + u8::try_from(random.below(90)).expect("a letter"))).collect();
    merge(&mut large, serde_json::json!({ "noise": noise }));
    assert_eq!(binary.takes(&agent, &large), Some(503));
    assert_eq!(binary.readiness(), 503);
    let tried = said(&binary.log, "a batch was not stored");
    assert_eq!(tried["events"], 1);
    said(&binary.log, "a batch was not stored");
    assert_eq!(binary.readiness(), 503, "as long as nothing can be written");
    prlimit(Some(binary.pid()), Resource::Fsize, before).expect("room");
    wait_until("it is ready again", || binary.readiness() == 200);
    assert_eq!(machine.rows("SELECT event_id FROM events"), ["evt_0"], "nothing was stored");
    assert_eq!(binary.takes(&agent, &large), Some(200));
    binary.is_told_to_stop();
    assert_eq!(binary.ends().code(), Some(0));
    machine.is_whole();
}
