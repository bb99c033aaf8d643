//! nginx that serves a directory of objects over TLS, with a self-made certificate.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const BUCKET: &str = "bench";
/// Number of attempts to connect to nginx while it starts.
const ATTEMPTS: usize = 100;

/// A running nginx, which is stopped on drop.
pub(crate) struct TlsServer {
    directory: tempfile::TempDir,
    pub(crate) address: SocketAddr,
    nginx: Child,
}

impl TlsServer {
    /// Serves objects by name.
    ///
    /// # Errors
    ///
    /// If `nginx` or `openssl` cannot be started, or fails.
    pub(crate) fn start(objects: impl IntoIterator<Item = (String, Arc<Vec<u8>>)>) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        fs::create_dir(root.join(BUCKET))?;
        for (name, content) in objects {
            fs::write(root.join(BUCKET).join(name), &content[..])?;
        }
        create_certificates(root)?;
        // The listener is dropped at once, so the port is free when nginx binds it, unless another process
        // takes it in between.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let root_path = root.display();
        let configuration = format!(
            "worker_processes 2;\ndaemon off;\npid {root_path}/pid;\nerror_log {root_path}/error.log;\n\
             events {{}}\nhttp {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  \
             keepalive_requests 1000000;\n  client_body_temp_path {root_path}/body;\n  server {{\n    \
             listen {address} ssl;\n    root {root_path};\n    ssl_certificate {root_path}/cert.pem;\n    \
             ssl_certificate_key {root_path}/key.pem;\n  }}\n}}\n"
        );
        fs::write(root.join("nginx.conf"), user_line() + &configuration)?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(root).arg("-c").arg(root.join("nginx.conf"));
        command.arg("-e").arg(root.join("error.log"));
        let nginx = command.spawn()?;
        let server = TlsServer { directory, address, nginx };
        for _ in 0..ATTEMPTS {
            if TcpStream::connect(address).is_ok() {
                return Ok(server);
            }
            thread::sleep(Duration::from_millis(50));
        }
        let log = fs::read_to_string(server.directory.path().join("error.log")).unwrap_or_default();
        Err(io::Error::other(format!("nginx does not listen: {log}")))
    }

    /// The certificate of the authority, which a client must trust.
    pub(crate) fn authority(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        // On SIGTERM, nginx ends its workers. If nginx were killed, the workers would keep running.
        let terminated = Command::new("kill").arg(self.nginx.id().to_string()).status();
        if !terminated.is_ok_and(|status| status.success()) {
            let _ = self.nginx.kill();
        }
        let _ = self.nginx.wait();
    }
}

/// If this process is root, the temporary directory of the objects is readable only by root. This line of
/// the configuration then makes nginx's workers run as root too. Otherwise the line is empty.
fn user_line() -> String {
    let id = Command::new("id").arg("-u").output();
    let is_root = id.is_ok_and(|id| id.stdout.starts_with(b"0\n"));
    if is_root { "user root;\n".into() } else { String::new() }
}

/// Creates a certificate authority, and a certificate for the server's address, signed by that authority.
fn create_certificates(directory: &Path) -> io::Result<()> {
    fs::write(directory.join("names"), "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")?;
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for arguments in [
        format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"),
        format!("req {key} -keyout key.pem -out request.pem -subj /CN=bench"),
        "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out cert.pem"
            .into(),
    ] {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(directory);
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("openssl {arguments}: {status}")));
        }
    }
    Ok(())
}
