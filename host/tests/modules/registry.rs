//! Debian's `docker-registry` on loopback, with a directory of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use oci_client::client::{
    Certificate, CertificateEncoding, ClientConfig, ClientProtocol, Config, ImageLayer,
};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;

use crate::deployed::process::free_port;

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const USER: &str = "puller";
pub(crate) const PASSWORD: &str = "a good password";
/// The bcrypt hash of the password, the only form that the registry accepts.
const HTPASSWD: &str = "puller:$2y$05$abcdefghijklmnopqrstuudPLndKqNxTJdyGgy8u1tt1GUFSmbwZS\n";

/// How a registry is protected.
#[derive(Clone, PartialEq)]
pub(crate) enum Protection {
    None,
    Password,
    Tls,
    /// TLS, and tokens of the service at this address.
    Token(String),
}

/// A registry that runs until it is dropped.
pub(crate) struct Registry {
    process: Child,
    directory: tempfile::TempDir,
    pub(crate) host: String,
    protection: Protection,
}

impl Registry {
    /// Starts a registry; none, and a line about it, if it is not installed.
    pub(crate) fn start(protection: Protection) -> Option<Self> {
        let installed = Command::new("docker-registry").arg("--version").output();
        if installed.is_err() {
            println!("skipped: docker-registry is not installed");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let host = format!("127.0.0.1:{port}");
        write_config(directory.path(), &host, &protection);
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(directory.path().join("config.yml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut registry = Self {
            process,
            directory,
            host,
            protection,
        };
        registry.until_it_listens();
        Some(registry)
    }

    /// The certificate of the authority that signed the registry's.
    pub(crate) fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Pushes an artefact with these layers, `(media type, content)`.
    pub(crate) async fn push(&self, name: &str, config_type: &str, layers: &[(&str, &[u8])]) {
        let layers = layers.iter().map(|(media_type, content)| {
            ImageLayer::new(content.to_vec(), (*media_type).to_owned(), None)
        });
        self.push_layers(name, config_type, layers.collect()).await;
    }

    /// Pushes an artefact with these layers.
    pub(crate) async fn push_layers(&self, name: &str, config_type: &str, layers: Vec<ImageLayer>) {
        let config = Config::new(b"{}".to_vec(), config_type.to_owned(), None);
        let auth = match &self.protection {
            Protection::Password => RegistryAuth::Basic(USER.into(), PASSWORD.into()),
            _ => RegistryAuth::Anonymous,
        };
        let reference: Reference = format!("{}/{name}", self.host).parse().unwrap();
        let client = self.client();
        client
            .push(&reference, &layers, config, &auth, None)
            .await
            .unwrap();
    }

    /// The digest of an artefact's manifest.
    pub(crate) async fn manifest_digest(&self, name: &str) -> String {
        let reference: Reference = format!("{}/{name}", self.host).parse().unwrap();
        let auth = RegistryAuth::Anonymous;
        self.client()
            .fetch_manifest_digest(&reference, &auth)
            .await
            .unwrap()
    }

    fn client(&self) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tls = self.protection == Protection::Tls;
        let certificates = tls.then(|| Certificate {
            encoding: CertificateEncoding::Pem,
            data: std::fs::read(self.ca()).unwrap(),
        });
        let config = ClientConfig {
            protocol: if tls {
                ClientProtocol::Https
            } else {
                ClientProtocol::Http
            },
            extra_root_certificates: certificates.into_iter().collect(),
            ..ClientConfig::default()
        };
        Client::try_from(config).unwrap()
    }

    fn until_it_listens(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(&self.host).is_err() {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "docker-registry ended: {ended:?}");
            assert!(Instant::now() < deadline, "docker-registry does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_config(directory: &Path, host: &str, protection: &Protection) {
    let path = |name: &str| directory.join(name);
    let mut config = json!({
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": path("storage")}},
        "http": {"addr": host, "secret": "x"},
    });
    match protection {
        Protection::None => {}
        Protection::Password => {
            std::fs::write(path("htpasswd"), HTPASSWD).unwrap();
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": path("htpasswd")}});
        }
        Protection::Tls | Protection::Token(_) => {
            write_certificates(directory);
            let tls = json!({"certificate": path("cert.pem"), "key": path("key.pem")});
            config["http"]["tls"] = tls;
        }
    }
    if let Protection::Token(realm) = protection {
        let issuer = json!({"issuer": "test", "rootcertbundle": path("ca.pem")});
        config["auth"] = json!({"token": issuer});
        config["auth"]["token"]["realm"] = json!(realm);
        config["auth"]["token"]["service"] = json!("test");
    }
    std::fs::write(path("config.yml"), config.to_string()).unwrap();
}

/// An authority, and a certificate for loopback that it signs.
fn write_certificates(directory: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &ca).unwrap();
    std::fs::write(directory.join("ca.pem"), ca.pem()).unwrap();
    std::fs::write(directory.join("cert.pem"), certificate.pem()).unwrap();
    std::fs::write(directory.join("key.pem"), key.serialize_pem()).unwrap();
}
