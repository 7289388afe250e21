//! Reaches a running host: at an address, or through the API server.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use davit_cluster::connect;
use hyper::Request;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::cli::{CredentialArguments, ServerArguments};
use crate::http::access::PROXIED;
use crate::http::address::ServerAddress;
use crate::resource::describe;

/// The `ServiceAccount` that may read everything on the host's port, as `deploy/base`
/// names it.
const VIEWER: &str = "davit-viewer";
/// The lifetime of its token, in seconds: the shortest that an API server gives.
const TOKEN_LIFE: i64 = 600;

/// A client of the host at the address of `--server`; none without that argument.
pub(super) fn at(arguments: &ServerArguments) -> Result<Option<Client>> {
    let server = arguments.server.as_ref();
    server
        .map(|server| of_host(server, &arguments.credentials))
        .transpose()
}

/// A client of the host at this address.
pub(super) fn of_host(server: &ServerAddress, credentials: &CredentialArguments) -> Result<Client> {
    let mut config = kube::Config::new(server.uri().clone());
    if let Some(file) = &credentials.token_file {
        let token = std::fs::read_to_string(file);
        let token = token.with_context(|| format!("--token-file {}", file.display()))?;
        config.auth_info.token = Some(token.trim().to_owned().into());
    }
    if let Some(file) = &credentials.certificate_authority {
        let certificates = certificates(file);
        let certificates =
            certificates.with_context(|| format!("--certificate-authority {}", file.display()))?;
        config.root_cert = Some(certificates);
    }
    Ok(connect::client(config)?)
}

fn certificates(file: &Path) -> Result<Vec<Vec<u8>>> {
    let certificates = CertificateDer::pem_file_iter(file)?;
    let certificates = certificates.map(|one| one.map(|one| one.to_vec()));
    let certificates: Vec<Vec<u8>> = certificates.collect::<Result<_, _>>()?;
    if certificates.is_empty() {
        return Err(anyhow!("it has no CERTIFICATE section"));
    }
    Ok(certificates)
}

/// The body of the host's answer, through the API server and the Service `davit`. The API
/// server forwards no `Authorization`: the token is one of the account `davit-viewer`,
/// which the user of this client must be allowed to request.
pub(super) async fn through_service(
    client: &Client,
    namespace: &str,
    path: &str,
) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let wanted = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(TOKEN_LIFE),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let params = PostParams::default();
    let given = accounts
        .create_token_request(VIEWER, &params, &wanted)
        .await;
    let given = given.map_err(|error| {
        anyhow!(
            "cannot create a token of the ServiceAccount {VIEWER}: {}",
            describe(&error).trim()
        )
    })?;
    let token = given.status.map(|status| status.token).unwrap_or_default();
    let service = format!("/api/v1/namespaces/{namespace}/services/davit:http/proxy");
    let request = Request::get(format!("{service}{path}"))
        .header(PROXIED, format!("Bearer {token}"))
        .body(Vec::new())?;
    text(client, request).await
}

/// The body of an answer.
pub(super) async fn text(client: &Client, request: Request<Vec<u8>>) -> Result<String> {
    let answer = client.request_text(request).await;
    answer.map_err(|error| anyhow!(describe(&error).trim().to_owned()))
}
