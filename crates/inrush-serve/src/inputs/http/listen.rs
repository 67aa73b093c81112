//! Sockets of an HTTP input.

use super::HttpInput;
use crate::config::Http;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use inrush_core::{Code, Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// How long a connection may take to say what it wants: the head of a request, a TLS handshake.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a request's head, and of what is read from a socket at once.
const READ_BUFFER: usize = 512 << 10;

/// A socket that listens.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Listener::Tcp(listener) => listener.accept().await.map(|(socket, _)| Socket::Tcp(socket)),
            Listener::Unix(listener) => listener.accept().await.map(|(socket, _)| Socket::Unix(socket)),
        }
    }

    /// Where it listens, for people.
    pub fn address(&self) -> String {
        match self {
            Listener::Tcp(listener) => {
                listener.local_addr().map_or(String::new(), |address| address.to_string())
            }
            Listener::Unix(listener) => {
                let path =
                    listener.local_addr().ok().and_then(|a| Some(a.as_pathname()?.display().to_string()));
                format!("unix:{}", path.unwrap_or_default())
            }
        }
    }
}

/// Opens the socket of an input: an address, or `unix:` and a path.
///
/// # Errors
/// Code `usage`, if it cannot be opened.
pub(crate) async fn open(name: &str, listen: &str) -> Result<Listener> {
    let Some(path) = listen.strip_prefix("unix:") else { return bind(name, listen).await.map(Listener::Tcp) };
    // A socket that nobody listens on was left behind by a process that was killed.
    if UnixStream::connect(path).await.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
        let _ = std::fs::remove_file(path);
    }
    UnixListener::bind(path)
        .map(Listener::Unix)
        .map_err(|e| Error::new(Code::Usage, format!("input {name:?} cannot listen on {listen:?}: {e}")))
}

/// Opens a TCP socket.
///
/// # Errors
/// Code `usage`, if it cannot be opened.
pub(crate) async fn bind(name: &str, listen: &str) -> Result<TcpListener> {
    TcpListener::bind(listen.strip_prefix(':').map_or(listen.to_owned(), |port| format!("0.0.0.0:{port}")))
        .await
        .map_err(|e| Error::new(Code::Usage, format!("input {name:?} cannot listen on {listen:?}: {e}")))
}

/// TLS, if the input has it.
///
/// # Errors
/// Code `usage`, for files that are not what they should be.
pub(crate) fn acceptor(config: &Http) -> Result<Option<TlsAcceptor>> {
    let (Some(cert), Some(key)) = (&config.tls_cert, &config.tls_key) else { return Ok(None) };
    let bad = |path: &std::path::Path, e: &dyn std::fmt::Display| {
        Error::new(Code::Usage, format!("input {:?}: {}: {e}", config.name, path.display()))
    };
    let chain: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(cert).map_err(|e| bad(cert, &e))?.collect();
    let chain = chain.map_err(|e| bad(cert, &e))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| bad(key, &e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| bad(cert, &e))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|e| bad(cert, &e))?;
    Ok(Some(TlsAcceptor::from(Arc::new(tls))))
}

/// Waits until the process stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // It is never dropped before that.
    let _ = stop.wait_for(|stop| *stop).await.map(|_| ());
}

/// Serves until the process stops; then finishes what has begun.
pub(crate) async fn serve(input: Arc<HttpInput>, listener: Listener) {
    let places = Arc::new(Semaphore::new(input.config.max_connections.max(1)));
    let mut stop = input.feeder.stop.clone();
    let mut connections = JoinSet::new();
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = stopped(&mut stop) => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok(socket) => {
                let (input, tls) = (Arc::clone(&input), input.tls());
                connections.spawn(async move {
                    let _place = place;
                    connection(input, socket, tls).await;
                });
            }
            Err(e) => {
                // Out of descriptors, mostly: others end.
                tracing::warn!(input = input.source.name, error = %e, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    if let Some(path) = listener.address().strip_prefix("unix:") {
        let _ = std::fs::remove_file(path);
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(input: Arc<HttpInput>, socket: Socket, tls: Option<TlsAcceptor>) {
    let socket = match socket {
        Socket::Tcp(socket) => socket,
        // Nobody can listen to it on the way.
        Socket::Unix(socket) => return http(input, socket).await,
    };
    let _ = socket.set_nodelay(true);
    match tls {
        None => http(input, socket).await,
        Some(tls) => {
            if let Ok(Ok(socket)) = tokio::time::timeout(HEAD_TIMEOUT, tls.accept(socket)).await {
                http(input, socket).await;
            }
        }
    }
}

async fn http<S: AsyncRead + AsyncWrite + Unpin>(input: Arc<HttpInput>, socket: S) {
    let mut stop = input.feeder.stop.clone();
    let service = service_fn(|request| {
        let input = Arc::clone(&input);
        async move { Ok::<_, Infallible>(input.answer(request).await.response()) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(READ_BUFFER)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // A sender that goes away or speaks something else: nothing is to be done about it.
        _ = connection.as_mut() => {}
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
