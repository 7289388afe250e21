//! The answers of a running host about a candidate, and `davit diff`.

use std::sync::Arc;
use std::time::Duration;

use davit::commands::diff::{Server, fetch, in_words};
use davit::config::ControllerConfig;
use davit::host::Host;
use davit::http::access::Access;
use davit::http::address::ServerAddress;
use davit::http::disagreements::{Disagreement, Page, Step};
use davit::http::requests::RequestPolicy;
use davit::http::tls::{self, CertificateFiles};
use davit::http::{self, Endpoints};
use davit::loader::Loader;
use davit::modules::{Modules, ModulesOptions};
use davit_cluster::connect;
use davit_core::api::{AnalysisConfig, ControllerSpec, HumanDuration, RolloutConfig};
use davit_guest::testing::Pod;
use kube::Client;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::cluster::Cluster;
use crate::deploy;
use crate::host::{engine, options};

/// A host, and its address.
async fn host(client: Client) -> (Host, ServerAddress) {
    host_with(client, None).await
}

/// The same, perhaps with TLS.
async fn host_with(client: Client, tls: Option<TlsAcceptor>) -> (Host, ServerAddress) {
    let options = options(client);
    let (metrics, health) = (Arc::clone(&options.metrics), Arc::clone(&options.health));
    let host = Host::start(options);
    let served = Endpoints {
        metrics,
        health,
        host: host.handle().clone(),
        requests: RequestPolicy::File,
        log: None,
        access: Access::Everyone,
    };
    let (address, _) = http::serve(&"127.0.0.1:0".parse().unwrap(), tls, served)
        .await
        .unwrap();
    // Without a scheme, as users write it.
    (host, address.to_string().parse().unwrap())
}

fn client(server: &ServerAddress) -> Client {
    connect::client(kube::Config::new(server.uri().clone())).unwrap()
}

/// PodGC with this threshold.
fn podgc(keeps: u32) -> ControllerSpec {
    let config = json!({"terminatedPodThreshold": keeps, "period": "200ms"});
    ControllerSpec::read(&json!({"module": {"builtin": "podgc"}, "config": config})).unwrap()
}

fn terminated_pods(cluster: &Cluster, count: u32) {
    for number in 0..count {
        let pod = Pod::new(&format!("p{number}")).phase("Succeeded");
        cluster.sim.create(pod.into()).unwrap();
    }
}

/// On virtual time: nothing else ends the connection.
#[tokio::test(start_paused = true)]
async fn a_client_that_never_ends_its_headers_is_disconnected() {
    let cluster = Cluster::new();
    let (host, uri) = host(cluster.davit.clone()).await;
    let address = uri.uri().authority().unwrap().as_str();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
    let mut answer = Vec::new();
    let ended = timeout(Duration::from_mins(2), stream.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "it still waits after two minutes");
    host.stop().await;
}

/// A certificate for 127.0.0.1 in the files, and in DER.
fn certify(files: &CertificateFiles) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    made.cert.der().to_vec()
}

/// On virtual time, which passes while nobody sends anything.
#[tokio::test(start_paused = true)]
async fn a_changed_certificate_is_used_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let files = CertificateFiles {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    let former = certify(&files);
    let cluster = Cluster::new();
    let acceptor = tls::acceptor(files.clone()).unwrap();
    let (host, uri) = host_with(cluster.davit.clone(), Some(acceptor)).await;
    let uri: ServerAddress = format!("https://{uri}")
        .replace("http://", "")
        .parse()
        .unwrap();
    let trusts = async |certificate: &Vec<u8>| {
        let mut config = kube::Config::new(uri.uri().clone());
        config.root_cert = Some(vec![certificate.clone()]);
        let client = connect::client(config).unwrap();
        let error = fetch(Server::At(&client, &uri), "podgc").await.unwrap_err();
        format!("{error:#}").contains("has no controller")
    };
    assert!(trusts(&former).await);

    // The key is not that of the certificate yet.
    let certificate = std::fs::read(&files.certificate).unwrap();
    let next = certify(&files);
    let replaced = std::fs::read(&files.certificate).unwrap();
    std::fs::write(&files.certificate, certificate).unwrap();
    sleep(Duration::from_secs(30)).await;
    assert!(trusts(&former).await);
    std::fs::write(&files.certificate, replaced).unwrap();
    sleep(Duration::from_secs(30)).await;
    assert!(trusts(&next).await);
    assert!(!trusts(&former).await);
    host.stop().await;
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused_by_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let files = CertificateFiles {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    let refusal = || {
        let error = tls::acceptor(files.clone()).err().unwrap();
        error.to_string()
    };
    assert!(
        refusal().contains("tls.crt cannot be read"),
        "{}",
        refusal()
    );
    certify(&files);
    std::fs::write(&files.key, "not a key").unwrap();
    assert!(
        refusal().contains("tls.key holds no private key in PEM"),
        "{}",
        refusal()
    );
    certify(&files);
    std::fs::write(&files.certificate, "nothing").unwrap();
    assert!(
        refusal().contains("tls.crt holds no certificate in PEM"),
        "{}",
        refusal()
    );
}

#[tokio::test]
async fn a_disagreement_is_served_with_both_plans() {
    let cluster = Cluster::new();
    deploy::install_roles(&cluster.sim, "podgc");
    terminated_pods(&cluster, 5);
    let (host, uri) = host(cluster.davit.clone()).await;
    let error = fetch(Server::At(&client(&uri), &uri), "podgc")
        .await
        .unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("the host has no controller \"podgc\""),
        "{error}"
    );

    // Both are in the mode DryRun, and disagree on two of the pods.
    let loader = Loader::new(engine(), Modules::new(ModulesOptions::default()).unwrap());
    let stable = loader.load(&podgc(1)).await.unwrap();
    let candidate = loader.load(&podgc(3)).await.unwrap();
    let names = [&stable, &candidate].map(|part| part.identity.to_string());
    let rollout = RolloutConfig {
        steps: vec!["shadow until promoted".parse().unwrap()],
        analysis: AnalysisConfig {
            window: Some(HumanDuration(Duration::from_millis(500))),
            ..AnalysisConfig::default()
        },
        ..RolloutConfig::default()
    };
    for spec in [podgc(1), podgc(3)] {
        let mut controllers = [ControllerConfig {
            name: "podgc".into(),
            spec: ControllerSpec {
                rollout: rollout.clone(),
                ..spec
            },
        }];
        deploy::set_accounts(&mut controllers);
        host.apply(&controllers).await.unwrap().recorded().await;
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    let page = loop {
        match fetch(Server::At(&client(&uri), &uri), "podgc").await {
            Ok(page) if page.counts.agree == 2 && page.counts.disagree == 2 => break page,
            other => assert!(Instant::now() < deadline, "{other:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    };
    assert_eq!([&page.stable, &page.candidate], [&names[0], &names[1]]);
    check(&page);
    host.stop().await;
}

fn check(page: &Page) {
    assert_eq!(page.disagreements.len(), 2);
    for disagreement in &page.disagreements {
        let Disagreement {
            result,
            target,
            stable,
            candidate,
            ..
        } = disagreement;
        assert_eq!(result, "only-stable");
        assert_eq!(
            (target.kind.as_str(), target.namespace.as_str()),
            ("Pod", "default")
        );
        let stable = stable.as_ref().unwrap();
        assert!(matches!(stable.steps[..], [Step::Delete(_)]), "{stable:?}");
        assert!(!stable.reason.is_empty() && !stable.message.is_empty());
        assert!(stable.at.parse::<jiff::Timestamp>().is_ok());
        assert_eq!(*candidate, None);
    }
    let words = in_words("podgc", page, 1);
    assert!(
        words.contains("2 agree, 2 disagree (2 only-stable")
            && words.contains("candidate: nothing")
            && words.contains("and 1 more"),
        "{words}"
    );
}
