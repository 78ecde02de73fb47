//! The servers under test: this very program, started again in another role, or the `billingd` binary itself.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use actix_web::dev::ServerHandle;
use actix_web::http::header::HeaderValue;
use actix_web::{HttpRequest, HttpResponse, web};
use billingd::app::{Service, Surroundings};
use billingd::config::Config;
use billingd::store::writer::Limits;
use billingd::stripe::signature::Verifier;
use billingd::{clock, config, http, log};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::SECRET;

/// The `billingd` binary, as it is shipped.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_billingd");

/// Threads of both servers, as in `billingd::app`.
const WORKERS: usize = 2;

/// Names the role in which this program is started again.
const ROLE: &str = "BILLINGD_BENCH_ROLE";

/// What a server does with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// All that billingd does.
    Books,
    /// The same, but commits each event by itself.
    OneByOne,
    /// Reads the body and verifies the signature, on the same HTTP server; stores nothing.
    Bare,
}

/// Plays the role that the environment asks for, if it asks for one.
pub(crate) fn play_role() -> bool {
    let Ok(role) = std::env::var(ROLE) else { return false };
    let path = std::env::args().nth(1).expect("the path of a config");
    let config = load(Path::new(&path));
    log::start(&config.log);
    actix_web::rt::System::new().block_on(async {
        match role.as_str() {
            "Books" => books(&config, Limits::default()).await,
            "OneByOne" => books(&config, Limits { batch_max: 1, ..Limits::default() }).await,
            _ => bare(&config).await,
        }
    });
    true
}

async fn books(config: &Config, limits: Limits) {
    let (service, server) =
        Service::start(config, Surroundings { limits, ..Surroundings::default() }).expect("a service");
    println!("{}", service.address());
    stop_with_stdin(service.handle());
    server.await.expect("a good end");
    service.drain().await.expect("a good end");
}

async fn bare(config: &Config) {
    let verifier = web::Data::new(Verifier::new(&[SECRET.to_owned()], 300).expect("a verifier"));
    let listener = TcpListener::bind(config.server.listen).expect("a listener");
    println!("{}", listener.local_addr().expect("an address"));
    let routes = move |routes: &mut web::ServiceConfig| {
        routes.app_data(verifier.clone());
        routes.route("/webhooks/stripe", web::post().to(verify_only));
    };
    let server =
        http::serve(listener, WORKERS, http::CONNECTIONS_MAX, Duration::from_secs(1), routes).expect("a server");
    stop_with_stdin(server.handle());
    server.await.expect("a good end");
}

async fn verify_only(request: HttpRequest, body: web::Bytes, verifier: web::Data<Verifier>) -> HttpResponse {
    let lines: Vec<&[u8]> = request.headers().get_all("stripe-signature").map(HeaderValue::as_bytes).collect();
    match verifier.verify(&lines, &body, clock::now() / 1000) {
        Ok(_) => HttpResponse::Ok()
            .content_type("application/json")
            .body(r#"{"status":"completed","outcome":"applied","event_id":"evt_000000000000000000000000"}"#),
        Err(rejection) => HttpResponse::BadRequest().body(rejection.code()),
    }
}

/// Ends the server when standard input ends, so that none is left behind, whatever becomes of the benchmark.
fn stop_with_stdin(handle: ServerHandle) {
    std::thread::spawn(move || {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        actix_web::rt::System::new().block_on(handle.stop(true));
    });
}

fn load(path: &Path) -> Config {
    config::load(Some(path), std::iter::empty()).expect("a config")
}

/// The config of a server whose database lies in `folder`, and which may ask Stripe at `api`.
pub(crate) fn write_config(folder: &Path, port: u16, api: Option<&str>) -> PathBuf {
    let path = folder.join("billingd.toml");
    let database = folder.join("books.db");
    let api = api.map_or_else(String::new, |url| format!("api_key = \"rk_test_bench\"\napi_base = \"{url}\"\n"));
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:{port}\"\n[database]\npath = {database:?}\n[stripe]\nlivemode = false\n{api}\
         [[webhook]]\nsigning_secrets = [\"{SECRET}\"]\n"
    );
    std::fs::write(&path, text).expect("a config");
    path
}

/// A running server; ends when it is dropped.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts this program again in a role. `preload` is a library that comes before the system's own.
    pub(crate) fn start(role: Role, folder: &Path, preload: Option<&Path>) -> Self {
        Self::run(role, &write_config(folder, 0, None), preload)
    }

    /// The same with a key for Stripe's API at an address, and with more lines of the config.
    pub(crate) fn start_asking(folder: &Path, api: &str, more: &str) -> Self {
        let config = write_config(folder, 0, Some(api));
        let mut file = OpenOptions::new().append(true).open(&config).expect("a config");
        file.write_all(more.as_bytes()).expect("a config");
        Self::run(Role::Books, &config, None)
    }

    fn run(role: Role, config: &Path, preload: Option<&Path>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(config).env(ROLE, format!("{role:?}"));
        if let Some(library) = preload {
            command.env("LD_PRELOAD", library);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a server");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("its address");
        Self { address: line.trim().parse().expect("its address"), child }
    }

    /// Nothing of it moves until [`Self::go_on`]: no job of it takes time from whoever is measured.
    pub(crate) fn stand_still(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("a server");
    }

    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("a server");
    }

    /// Memory that it holds now, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        resident_bytes(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.go_on();
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
    kibibytes.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or_default() << 10
}

/// Starts the binary on the database in `folder`; how long until it takes a connection, and its memory a second later.
pub(crate) fn start_binary(folder: &Path) -> (Duration, u64) {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    let config = write_config(folder, port, None);
    let began = Instant::now();
    let mut child = Command::new(BINARY)
        .args(["--config".as_ref(), config.as_os_str()])
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary");
    while TcpStream::connect(("127.0.0.1", port)).is_err() && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_micros(200));
    }
    let listening = began.elapsed();
    std::thread::sleep(Duration::from_secs(1));
    let idle = resident_bytes(child.id());
    drop(child.kill());
    drop(child.wait());
    (listening, idle)
}
