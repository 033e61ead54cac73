//! Certificates for servers that speak TLS, made with `openssl`.

use std::path::Path;
use std::process::Command;

use super::process::Scratch;

/// A new authority, with a certificate for a server and one for a client: `ca.pem`, `server.pem`,
/// `server.key`, `client.pem` and `client.key`.
#[derive(Debug)]
pub struct Certificates {
    folder: Scratch,
}

impl Certificates {
    /// For a server with these names, e.g. `IP:127.0.0.1,DNS:localhost`.
    pub fn new(names: &str) -> Certificates {
        let folder = Scratch::new("tls");
        let path = folder.path();
        let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        openssl(path, &format!("req -x509 {new_key} -keyout ca.key -out ca.pem -days 2 -subj /CN=ca"));
        std::fs::write(path.join("names"), format!("subjectAltName={names}\n")).expect("a file");
        for who in ["server", "client"] {
            openssl(path, &format!("req {new_key} -keyout {who}.key -out {who}.csr -subj /CN={who}"));
            let by_ca = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names";
            openssl(path, &format!("x509 -req -in {who}.csr {by_ca} -out {who}.pem"));
        }
        Certificates { folder }
    }

    /// The path of a file among them.
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

fn openssl(folder: &Path, args: &str) {
    let output = Command::new("openssl").current_dir(folder).args(args.split(' ')).output().expect("openssl");
    assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
}
