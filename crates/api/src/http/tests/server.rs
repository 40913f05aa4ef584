//! The server with real sockets: start, stop, TLS, slow clients, many connections.

use super::*;
use crate::http::{Server, spawn};
use crate::security::tls::tests::test_files;
use konkordia_core::failure::Exit;
use std::io::{Read, Write};
use std::net::TcpStream;

fn serve(settings: Settings) -> (Server, Arc<Fake>) {
    let fake = Fake::new("eiger");
    (spawn(fleet(&[Arc::clone(&fake)]), settings).unwrap(), fake)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Everything that comes until the other side closes.
fn ask(mut stream: TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

const STATUS: &str = "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn it_answers_and_stops_within_two_seconds_with_a_stream_open() {
    let (server, _) = serve(Settings::on(loopback()));
    let address = server.address();
    assert!(address.port() > 0 && server.url() == format!("http://{address}"));
    let answer = ask(connect(&server), STATUS);
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"eiger\""), "{answer}");
    let mut events = connect(&server);
    events.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut start = [0; 12];
    events.read_exact(&mut start).unwrap();
    let rests = connect(&server);
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    drop(rests);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn pixels_for_which_nobody_asks_are_freed_while_it_serves() {
    let (server, fake) = serve(Settings::on(loopback()));
    let until = Instant::now() + Duration::from_secs(60);
    while fake.ring.forgotten.load(Ordering::SeqCst) < 2 {
        assert!(Instant::now() < until, "it never frees any");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop();
}

#[test]
fn what_cannot_be_served_is_said_in_words() {
    let (server, _) = serve(Settings::on(loopback()));
    let fail = |settings: Settings| spawn(fleet(&[Fake::new("eiger")]), settings).err().unwrap();
    let taken = fail(Settings::on(server.address()));
    assert_eq!((taken.exit, taken.why.as_str()), (Exit::State, "Address already in use"));
    assert!(taken.fix.contains("another `konkordia serve`"));
    let open = fail(Settings::on("0.0.0.0:0".parse().unwrap()));
    assert!(
        open.exit == Exit::Configuration && open.what.contains("needs tokens") && open.fix.contains("konkordia token create")
    );
    let (_folder, settings, _) = tokens();
    let foreign = fail(Settings { address: "203.0.113.1:0".parse().unwrap(), ..settings });
    assert!(foreign.what.contains("cannot listen for HTTP on 203.0.113.1") && foreign.fix.contains("ip address"), "{foreign}");
    let odd = fail(Settings { origins: vec!["viewer".into()], ..Settings::on(loopback()) });
    assert!(odd.why.contains("'viewer' is not a valid origin"));
    let files = crate::security::tls::TlsFiles { key: "none".into(), ..test_files() };
    assert!(fail(Settings { tls: Some(files), ..Settings::on(loopback()) }).what.contains("cannot read the key"));
    let audit = fail(Settings { audit: Some("/nowhere/audit".into()), ..Settings::on(loopback()) });
    assert!(audit.what.contains("audit log"));
}

#[test]
fn tls_is_spoken_with_the_configured_certificate() {
    let (server, _) = serve(Settings { tls: Some(test_files()), ..Settings::on(loopback()) });
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    let certificate = std::fs::read(test_files().certificate).unwrap();
    let certificate = rustls::pki_types::pem::PemObject::from_pem_slice(&certificate).unwrap();
    roots.add(certificate).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut client = rustls::ClientConnection::new(config, name).unwrap();
    let mut stream = connect(&server);
    let mut tls = rustls::Stream::new(&mut client, &mut stream);
    tls.write_all(STATUS.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = tls.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"eiger\""), "{answer}");
    assert!(server.url().starts_with("https://"));
    assert!(!ask(connect(&server), STATUS).contains("eiger"), "nothing is said in the clear");
}

#[test]
fn headers_that_never_end_are_not_waited_for() {
    let limits = Limits { header_timeout: Duration::from_millis(300), ..Limits::default() };
    let (server, _) = serve(Settings { limits, ..Settings::on(loopback()) });
    let slow = ask(connect(&server), "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
    assert!(!slow.contains("200 OK"), "{slow}");
    let resting = ask(connect(&server), "");
    assert_eq!(resting, "", "a connection without a request is closed");
    let kept = ask(connect(&server), "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(kept.starts_with("HTTP/1.1 200 OK"), "closed after it rested");
}

#[test]
fn headers_that_are_too_large_are_refused() {
    let (server, _) = serve(Settings { limits: Limits { header_bytes: 8192, ..Limits::default() }, ..Settings::on(loopback()) });
    let large = ask(connect(&server), &format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: {}\r\n\r\n", "a".repeat(20_000)));
    assert!(large.is_empty() || large.starts_with("HTTP/1.1 431"), "{large}");
    let many: String = (0..100).map(|n| format!("X-{n}: 1\r\n")).collect();
    let many = ask(connect(&server), &format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"));
    assert!(many.is_empty() || many.starts_with("HTTP/1.1 431"), "{many}");
    assert!(ask(connect(&server), "nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(ask(connect(&server), STATUS).starts_with("HTTP/1.1 200"));
}

#[test]
fn connections_are_limited() {
    let limits = Limits { connections: 8, connections_per_address: 3, ..Limits::default() };
    let (server, _) = serve(Settings { limits, ..Settings::on(loopback()) });
    let held: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut start = [0; 12];
            stream.read_exact(&mut start).unwrap();
            stream
        })
        .collect();
    let refused = ask(connect(&server), "");
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("too many connections"), "{refused}");
    drop(held);
    let end = Instant::now() + Duration::from_secs(10);
    while !ask(connect(&server), STATUS).starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < end, "places are given back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn who_only_sits_there_keeps_nobody_out() {
    // Connections get their places on several threads, a few of them out of order, so there are more places than those
    // few.
    let limits = Limits { connections: 30, connections_per_address: 12, ..Limits::default() };
    let (server, _) = serve(Settings { limits, ..Settings::on(loopback()) });
    let mut idle: Vec<TcpStream> = Vec::new();
    for n in 0..60 {
        let mut stream = connect(&server);
        // Nothing, half of a request, half of a body, a whole request and then nothing.
        let sent = [
            "",
            "GET /api/v1/status HTTP/1.1\r\nHost: loc",
            "POST /api/v1/arm HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
            STATUS,
        ][n % 4];
        stream.write_all(sent.replace("Connection: close\r\n", "").as_bytes()).unwrap();
        idle.push(stream);
        if n % 5 == 4 {
            let answer = ask(connect(&server), &STATUS.replace("GET", "POST").replace("status", "cancel"));
            assert!(answer.starts_with("HTTP/1.1 200"), "after {n}: {answer}");
        }
    }
}

#[test]
fn the_limit_of_headers_is_what_it_says() {
    let (server, _) = serve(Settings::on(loopback()));
    for (bytes, start) in [(30 << 10, "HTTP/1.1 200"), (33 << 10, "HTTP/1.1 431"), (44 << 10, "HTTP/1.1 431")] {
        let filler = "a".repeat(bytes);
        let request = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Large: {filler}\r\n\r\n");
        let answer = ask(connect(&server), &request);
        assert!(answer.starts_with(start), "{bytes}: {answer}");
    }
}

#[test]
fn a_client_that_takes_nothing_is_left() {
    use konkordia_core::array::{Array, Element, Packing, Shape};
    use konkordia_core::image::Channel;
    let limits = Limits { stall_timeout: Duration::from_millis(300), ..Limits::default() };
    let (server, fake) = serve(Settings { limits, ..Settings::on(loopback()) });
    let bytes = 64 << 20;
    let array = Array {
        shape: Shape::new(&[bytes as u64]).unwrap(),
        element: Element::Uint8,
        packing: Packing::None,
        pieces: vec![Bytes::from(vec![0; bytes])],
    };
    fake.show(CommittedImage {
        status: konkordia_core::ledger::ImageStatus::Complete,
        channels: vec![Channel { name: "".into(), array }],
        ..CommittedImage::lost(0)
    });
    let all = server.shared.image_mib.available_permits();
    let mut stream = connect(&server);
    stream.write_all(b"GET /api/v1/images/0?format=raw HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    let end = Instant::now() + Duration::from_secs(10);
    while server.shared.image_mib.available_permits() < all {
        assert!(Instant::now() < end, "its memory is given back");
        std::thread::sleep(Duration::from_millis(20));
    }
}
