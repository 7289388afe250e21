//! The HTTP of one registry: its tokens, its redirects, and the sizes of its answers.
//!
//! A registry is not trusted with more than its content. It learns the credentials of
//! its pull secret; a token service that it names learns them over HTTPS only. A
//! redirect carries neither credentials nor a token, and neither may lead to an
//! address that only the host can reach. Each answer has a limit.

use std::error::Error;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use davit_core::api::OciSource;
use http_auth::parser::ChallengeParser;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Method, Response, StatusCode, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;

use super::places::{Guard, PlaceError, places};
use super::problem::{OciProblem, shortened};
use crate::modules::pull_secret::Credentials;

const AGENT: &str = concat!("davit/", env!("CARGO_PKG_VERSION"));

const CONNECT: Duration = Duration::from_secs(10);
/// The longest time between two parts of an answer.
const SILENCE: Duration = Duration::from_secs(30);

/// The largest answer of a token service, and of a registry that refuses a request, in
/// bytes.
const MOST_TOKEN_BYTES: usize = 64 << 10;
const MOST_REFUSAL_BYTES: usize = 64 << 10;

/// How many redirects one request follows.
const MOST_REDIRECTS: u32 = 5;

type Result<T> = std::result::Result<T, OciProblem>;

/// A registry, and the access to one of its repositories.
pub(super) struct Registry {
    /// As in the reference, for errors.
    name: String,
    repository: String,
    base: Url,
    insecure: bool,
    certificates: Vec<Certificate>,
    /// For the registry itself.
    client: Client,
    credentials: Option<Credentials>,
    /// The header `Authorization` of requests to the registry itself.
    access: Option<HeaderValue>,
}

impl Registry {
    /// Creates the client; sends nothing yet.
    pub(super) fn new(
        source: &OciSource,
        ca_cert: Option<&[u8]>,
        credentials: Option<Credentials>,
    ) -> Result<Self> {
        // Fails if a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let reference = &source.reference.0;
        let name = reference.registry().to_owned();
        let certificates = ca_cert.map_or_else(|| Ok(Vec::new()), certificates);
        let certificates = certificates.map_err(OciProblem::Certificates)?;
        let scheme = if source.insecure { "http" } else { "https" };
        let base = format!("{scheme}://{}/", reference.resolve_registry());
        let base = base.parse().map_err(|error| OciProblem::Unreachable {
            registry: name.clone(),
            reason: format!("{base} is not a URL: {error}"),
        })?;
        Ok(Self {
            client: client(&certificates, None)?,
            name,
            repository: reference.repository().to_owned(),
            base,
            insecure: source.insecure,
            certificates,
            credentials,
            access: None,
        })
    }

    /// Gains access as the registry requires it: with a token, with the credentials
    /// themselves, or without either.
    pub(super) async fn log_in(&mut self) -> Result<()> {
        let answer = self.send(Method::GET, self.url("/v2/"), "", None).await?;
        self.access = match Challenge::of(answer.headers()) {
            Some(Challenge::Bearer { realm, service }) => {
                Some(self.token(&realm, service.as_deref()).await?)
            }
            Some(Challenge::Other) => self.credentials.as_ref().map(basic),
            None => None,
        };
        Ok(())
    }

    /// GET of a path of the repository, such as `manifests/1.0`. The answer is 200.
    pub(super) async fn get(&self, path: &str, accept: &str) -> Result<Response> {
        let access = self.access.as_ref();
        let url = self.url(&format!("/v2/{}/{path}", self.repository));
        let answer = self.send(Method::GET, url, accept, access).await?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            _ => Err(self.refusal(answer).await),
        }
    }

    /// HEAD of a path of the repository. An answer that leads elsewhere is a success:
    /// the registry knows where the content is.
    pub(super) async fn head(&self, path: &str, accept: &str) -> Result<HeaderMap> {
        let url = self.url(&format!("/v2/{}/{path}", self.repository));
        let request = self.client.head(url).header(ACCEPT, accept);
        let request = match &self.access {
            Some(access) => request.header(AUTHORIZATION, access),
            None => request,
        };
        let answer = request.send().await.map_err(|error| self.broken(&error))?;
        if answer.status() == StatusCode::OK || answer.status().is_redirection() {
            return Ok(answer.headers().clone());
        }
        Err(self.refusal(answer).await)
    }

    /// The body of an answer; none if it has more than `most` bytes.
    pub(super) async fn body(&self, mut answer: Response, most: usize) -> Result<Option<Vec<u8>>> {
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| self.broken(&error))? {
            // Also if the header Content-Length says less.
            if body.len() + piece.len() > most {
                return Ok(None);
            }
            body.extend_from_slice(&piece);
        }
        Ok(Some(body))
    }

    /// A token for pulling from the repository.
    async fn token(&self, realm: &str, service: Option<&str>) -> Result<HeaderValue> {
        let mut url: Url = realm
            .parse()
            .map_err(|error| self.misled(realm, format!("it is not a URL: {error}")))?;
        let scope = format!("repository:{}:pull", self.repository);
        url.query_pairs_mut().append_pair("scope", &scope);
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", service);
        }
        let access = self.credentials.as_ref().map(basic);
        let answer = self.send(Method::GET, url, "", access.as_ref()).await?;
        let status = answer.status();
        let Some(body) = self.body(answer, MOST_TOKEN_BYTES).await? else {
            let reason = format!("its answer has more than {MOST_TOKEN_BYTES} bytes");
            return Err(self.odd_token(&reason));
        };
        if status != StatusCode::OK {
            return Err(self.no_token(&body));
        }
        let token: Token =
            serde_json::from_slice(&body).map_err(|error| self.odd_token(&error.to_string()))?;
        let token = token.token.or(token.access_token);
        let token = token.ok_or_else(|| self.odd_token("it has neither token nor access_token"))?;
        let mut header = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| self.odd_token("it has characters that an HTTP header cannot have"))?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// Sends a request, and follows redirects. Only the first request has the header
    /// `Authorization`.
    async fn send(
        &self,
        method: Method,
        first: Url,
        accept: &str,
        access: Option<&HeaderValue>,
    ) -> Result<Response> {
        let (mut url, mut access) = (first, access);
        for _ in 0..=MOST_REDIRECTS {
            let client = self.client_for(&url).await?;
            let request = client.request(method.clone(), url.clone());
            let request = request.header(ACCEPT, accept);
            let request = match access.take() {
                Some(access) => request.header(AUTHORIZATION, access),
                None => request,
            };
            let answer = request.send().await.map_err(|error| self.broken(&error))?;
            match redirect(&answer) {
                None => return Ok(answer),
                Some(Ok(next)) => url = next,
                Some(Err(reason)) => return Err(self.misled(url.as_str(), reason)),
            }
        }
        let reason = format!("it is the end of more than {MOST_REDIRECTS} redirects");
        Err(self.misled(url.as_str(), reason))
    }

    /// A client for a server that the registry named.
    async fn client_for(&self, server: &Url) -> Result<Client> {
        if !self.insecure && server.scheme() != "https" {
            let reason = "it is not an https URL, and the registry is not marked insecure";
            return Err(self.misled(server.as_str(), reason.to_owned()));
        }
        if server.host_str() == self.base.host_str() {
            return Ok(self.client.clone());
        }
        let guard = Guard::new(server, places(&self.base).await);
        let guard = guard.map_err(|error| self.misled(server.as_str(), error.to_string()))?;
        client(&self.certificates, Some(guard))
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(path);
        url
    }

    /// A connection that failed or broke.
    fn broken(&self, error: &reqwest::Error) -> OciProblem {
        if let Some(place) = find::<PlaceError>(error) {
            let target = error.url().map_or("a server", Url::as_str);
            return self.misled(target, place.to_string());
        }
        if error.is_timeout() {
            return OciProblem::NoAnswer(self.name.clone());
        }
        OciProblem::Unreachable {
            registry: self.name.clone(),
            reason: root_cause(error),
        }
    }

    fn misled(&self, target: &str, reason: String) -> OciProblem {
        let target = target.split('?').next().unwrap_or_default();
        OciProblem::Misled {
            registry: self.name.clone(),
            target: shortened(target),
            reason,
        }
    }

    /// An answer other than the expected one.
    async fn refusal(&self, answer: Response) -> OciProblem {
        let status = answer.status();
        let body = match self.body(answer, MOST_REFUSAL_BYTES).await {
            Ok(body) => body.unwrap_or_default(),
            Err(problem) => return problem,
        };
        if status == StatusCode::UNAUTHORIZED {
            return self.unauthorised();
        }
        let envelope = serde_json::from_slice(&body).ok();
        if let Some(envelope) = envelope.filter(|_| status.is_client_error()) {
            return self.refused(envelope);
        }
        match status {
            StatusCode::FORBIDDEN => self.unauthorised(),
            StatusCode::NOT_FOUND => OciProblem::NotFound(self.name.clone()),
            _ => {
                let text = String::from_utf8_lossy(&body);
                self.odd_answer(&format!("{} {text}", status.as_u16()))
            }
        }
    }

    fn refused(&self, envelope: Envelope) -> OciProblem {
        let Some(error) = envelope.errors.into_iter().next() else {
            return self.odd_answer("an error without a reason");
        };
        match error.code.as_str() {
            "UNAUTHORIZED" | "DENIED" => self.unauthorised(),
            "MANIFEST_UNKNOWN" | "NAME_UNKNOWN" | "NOT_FOUND" | "BLOB_UNKNOWN" => {
                OciProblem::NotFound(self.name.clone())
            }
            code => self.odd_answer(&format!("{code}: {}", error.message)),
        }
    }

    /// The status does not matter: services distinguish a denial from an overload in
    /// the text alone.
    fn no_token(&self, answer: &[u8]) -> OciProblem {
        if let Ok(envelope) = serde_json::from_slice(answer) {
            return self.refused(envelope);
        }
        OciProblem::NoToken {
            registry: self.name.clone(),
            who: self.who(),
            answer: match shortened(&String::from_utf8_lossy(answer)) {
                empty if empty.is_empty() => "nothing".to_owned(),
                answer => answer,
            },
        }
    }

    fn odd_token(&self, reason: &str) -> OciProblem {
        OciProblem::OddToken {
            registry: self.name.clone(),
            reason: shortened(reason),
        }
    }

    fn odd_answer(&self, answer: &str) -> OciProblem {
        OciProblem::Refused {
            registry: self.name.clone(),
            answer: shortened(answer),
        }
    }

    fn unauthorised(&self) -> OciProblem {
        OciProblem::Unauthorised {
            registry: self.name.clone(),
            who: self.who(),
            anonymous: self.credentials.is_none(),
        }
    }

    fn who(&self) -> String {
        match &self.credentials {
            Some(credentials) => format!("the user {}", credentials.username),
            None => "anonymous access".to_owned(),
        }
    }
}

/// What a registry asks for.
enum Challenge {
    /// A token of its token service.
    Bearer {
        realm: String,
        service: Option<String>,
    },
    /// Another proof: the credentials themselves.
    Other,
}

impl Challenge {
    /// The challenge of an answer; none if the registry asks for nothing.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let texts = headers.get_all(WWW_AUTHENTICATE).into_iter();
        let texts: Vec<&str> = texts.filter_map(|text| text.to_str().ok()).collect();
        let challenges = texts.iter().flat_map(|text| ChallengeParser::new(text));
        let mut bearers = challenges.flatten().filter_map(|challenge| {
            let parameter = |name: &str| {
                let mut parameters = challenge.params.iter();
                let found = parameters.find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            let is_bearer = challenge.scheme.eq_ignore_ascii_case("Bearer");
            Some(Self::Bearer {
                realm: parameter("realm").filter(|_| is_bearer)?,
                service: parameter("service"),
            })
        });
        let bearer = bearers.next();
        bearer.or_else(|| {
            headers
                .contains_key(WWW_AUTHENTICATE)
                .then_some(Self::Other)
        })
    }
}

/// The answer of a token service.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// The body of a refusal.
#[derive(Deserialize)]
struct Envelope {
    errors: Vec<EnvelopeError>,
}

#[derive(Deserialize)]
struct EnvelopeError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// Where an answer leads, if it is a redirect.
fn redirect(answer: &Response) -> Option<std::result::Result<Url, String>> {
    if !answer.status().is_redirection() {
        return None;
    }
    let location = answer.headers().get(LOCATION)?.to_str();
    let location = location.map_err(|_| "it redirects to what is not a text".to_owned());
    Some(location.and_then(|location| {
        let next = answer.url().join(location);
        next.map_err(|error| format!("it redirects to what is not a URL: {error}"))
    }))
}

/// The header of a user with a password.
fn basic(credentials: &Credentials) -> HeaderValue {
    let Credentials { username, password } = credentials;
    let pair = BASE64_STANDARD.encode(format!("{username}:{password}"));
    let header = HeaderValue::try_from(format!("Basic {pair}"));
    // Base64 has no characters that a header cannot have.
    let mut header = header.unwrap_or(HeaderValue::from_static(""));
    header.set_sensitive(true);
    header
}

/// A client that follows no redirects by itself.
fn client(certificates: &[Certificate], guard: Option<Guard>) -> Result<Client> {
    let client = Client::builder()
        .user_agent(AGENT)
        .connect_timeout(CONNECT)
        .read_timeout(SILENCE)
        .redirect(Policy::none())
        .tls_certs_merge(certificates.iter().cloned());
    let client = match guard {
        Some(guard) => client.dns_resolver(guard),
        None => client,
    };
    client
        .build()
        .map_err(|error| OciProblem::Tls(root_cause(&error)))
}

/// The certificates in a PEM file.
fn certificates(pem: &[u8]) -> std::result::Result<Vec<Certificate>, String> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let der = certificate.map_err(|error| error.to_string())?;
        found.push(Certificate::from_der(&der).map_err(|error| root_cause(&error))?);
    }
    if found.is_empty() {
        return Err("the file has no certificate".to_owned());
    }
    Ok(found)
}

/// The root cause of an error: "connection refused" without the outer errors.
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// The error of this type among the causes of an error.
fn find<E: Error + 'static>(error: &dyn Error) -> Option<&E> {
    let mut cause = error.source();
    while let Some(deeper) = cause {
        if let Some(found) = deeper.downcast_ref() {
            return Some(found);
        }
        cause = deeper.source();
    }
    None
}
