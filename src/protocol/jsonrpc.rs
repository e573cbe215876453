//! JSON-RPC 2.0: POST to `/` over HTTP/1.1.
//!
//! hyper reads the requests, `vet` makes sure that nothing in a body can have an effect without
//! an answer, and jsonrpsee dispatches. A notification has no effect and no answer: HTTP 204.

mod openrpc;
mod vet;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method as HttpMethod, Request as HttpRequest, Response as HttpResponse, StatusCode};
use hyper_util::rt::TokioIo;
use jsonrpsee::RpcModule;
use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::server::{
    BatchRequestConfig, HttpBody, Server, ServerConfig, TowerService, stop_channel,
};
use jsonrpsee::types::ErrorObjectOwned;
use jsonrpsee::types::error::{ErrorCode, OVERSIZED_RESPONSE_CODE};
use serde_json::Value;
use serde_json::value::RawValue;
use tower::ServiceExt;
use tower::layer::util::Identity;

use super::{BadParameter, Params, Spelling, decode, encode, methods, spell_error};
use crate::allocator::LOCK_PATIENCE;
use crate::config::Limits;
use crate::error::Error;
use crate::listener::{Connection, Context, Received, last_look};
use crate::peer::{Peer, Scope};
use crate::request::Method;
use crate::service::Service;
use vet::{Vetted, vet};

/// Answers the calls of one kind of socket; the same for all its connections.
#[derive(Clone)]
pub struct Dispatcher {
    jsonrpsee: TowerService<Identity, Identity>,
    body_bytes_max: usize,
    batch_max: usize,
}

impl Dispatcher {
    /// Offers every method that sockets of this scope have.
    pub fn new(service: &Service, scope: Scope, limits: &Limits) -> Result<Self, DispatcherError> {
        let document = openrpc::document(scope)?;
        let mut module = RpcModule::new(service.clone());
        for (method, name) in offered(scope) {
            module.register_async_method(name, move |params, service, extensions| {
                async move {
                    // nothing reaches jsonrpsee without its peer
                    let request = extensions.get::<Arc<Origin>>().ok_or_else(unknown_peer)?;
                    let reply = call(&service, request, method, params.as_str()).await?;
                    request.fit(&reply, method.is_change())
                }
            })?;
        }
        module
            .register_method(DISCOVER, move |params, _, _| discover(params.as_str(), &document))?;
        let body_bytes_max = match scope {
            Scope::Module => limits.message_bytes,
            Scope::Admin => limits.admin_message_bytes,
        };
        let config = ServerConfig::builder()
            .http_only()
            .set_batch_request_config(BatchRequestConfig::Limit(saturating(limits.batch)))
            // bounded by us, before a body is read and when a connection is accepted
            .max_request_body_size(u32::MAX)
            .max_connections(u32::MAX)
            // a reply that is cut off for its size would be an effect without an answer
            .max_response_body_size(u32::MAX)
            .build();
        let (stop, _) = stop_channel();
        let jsonrpsee =
            Server::builder().set_config(config).to_service_builder().build(module, stop);
        Ok(Self { jsonrpsee, body_bytes_max, batch_max: limits.batch })
    }

    /// Serves one connection until the peer hangs up, leaves a limit, or the service stops.
    pub async fn serve(&self, connection: Connection, context: &Context) -> std::io::Result<()> {
        let Connection { stream, received, peer } = connection;
        let service = service_fn(move |request| {
            let (dispatcher, peer, received) = (self.clone(), peer.clone(), received.clone());
            async move { Ok::<_, Infallible>(dispatcher.answer(request, peer, &received).await) }
        });
        let connection = http1::Builder::new()
            // a client may close its sending side and still read the answer
            .half_close(true)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let served = tokio::select! {
            biased;
            served = connection.as_mut() => served,
            () = last_look(&context.stopping) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        served.map_err(std::io::Error::other)
    }

    async fn answer(
        self,
        request: HttpRequest<Incoming>,
        peer: Peer,
        received: &Received,
    ) -> HttpResponse<HttpBody> {
        let (mut parts, body) = request.into_parts();
        if parts.uri.path() != "/" {
            return refusal(StatusCode::NOT_FOUND, "JSON-RPC is at /\n");
        }
        if parts.method != HttpMethod::POST {
            let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "POST is required\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        if !is_json(&parts.headers) {
            let text = "Content-Type: application/json is required\n";
            return refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
        }
        let body = match self.read(body).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        received.message(false);
        let Vetted::Forward(text) = vet(&body, self.batch_max) else {
            return empty(StatusCode::NO_CONTENT);
        };
        // jsonrpsee knows fewer ways of spelling it
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        parts.extensions.insert(Arc::new(Origin::new(peer)));
        let request = HttpRequest::from_parts(parts, Full::new(Bytes::from(text)));
        match self.jsonrpsee.oneshot(request).await {
            Ok(response) => response,
            Err(error) => {
                tracing::error!(%error, "jsonrpsee failed");
                empty(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }

    /// The whole body, or what to answer where it is too long or cut off.
    async fn read(&self, body: Incoming) -> Result<Bytes, HttpResponse<HttpBody>> {
        let too_long = || refusal(StatusCode::PAYLOAD_TOO_LARGE, "The message is too long\n");
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > self.body_bytes_max {
            return Err(too_long());
        }
        match Limited::new(body, self.body_bytes_max).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(too_long()),
            Err(_) => Err(refusal(StatusCode::BAD_REQUEST, "The body is cut off\n")),
        }
    }
}

/// The method of the OpenRPC specification that tells what a socket offers.
const DISCOVER: &str = "rpc.discover";

fn discover(params: Option<&str>, document: &Value) -> Result<Value, ErrorObjectOwned> {
    match Params::parse(raw(params)?, Spelling::SnakeCase, &[]) {
        Ok(_) => Ok(document.clone()),
        Err(BadParameter(name)) => Err(bad_parameter(&name)),
    }
}

/// Why the methods can't be offered. A mistake in this program, and in no input.
#[derive(Debug, thiserror::Error)]
pub enum DispatcherError {
    /// Two methods have one name.
    #[error(transparent)]
    Method(#[from] RegisterMethodError),
    /// An interface description is malformed.
    #[error("interface description: {0}")]
    Description(#[from] zlink_idl::parse::Error),
}

/// Whether the body is said to be JSON, with whatever parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = said.split(';').next().unwrap_or_default().trim();
    ["application/json", "application/json-rpc"]
        .iter()
        .any(|known| essence.eq_ignore_ascii_case(known))
}

/// Where the calls of one HTTP request come from, and how much they were answered.
struct Origin {
    peer: Peer,
    reply_bytes: AtomicUsize,
    /// Until when its calls, all together, wait for a locked database.
    patience_ends: Instant,
}

/// Once the replies of a batch are larger than this, calls that change nothing get no more: a batch
/// of long listings would otherwise make the service hold all of them at once. In bytes.
const BATCH_REPLY_BYTES_MAX: usize = 1024 * 1024;

impl Origin {
    fn new(peer: Peer) -> Self {
        let patience_ends = Instant::now() + LOCK_PATIENCE;
        Self { peer, reply_bytes: AtomicUsize::new(0), patience_ends }
    }

    /// The reply as it is sent, or a refusal to send any more. The reply to a change is always sent.
    fn fit(&self, reply: &Value, is_change: bool) -> Result<Box<RawValue>, ErrorObjectOwned> {
        let reply = serde_json::value::to_raw_value(reply)
            .map_err(|_| ErrorObjectOwned::from(ErrorCode::InternalError))?;
        let before = self.reply_bytes.fetch_add(reply.get().len(), Ordering::Relaxed);
        if before > BATCH_REPLY_BYTES_MAX && !is_change {
            let text = "the replies of the batch are too large";
            return Err(ErrorObjectOwned::owned(OVERSIZED_RESPONSE_CODE, text, None::<()>));
        }
        Ok(reply)
    }
}

/// The longest HTTP header, in bytes.
const HEADER_BYTES_MAX: usize = 16 * 1024;

fn saturating(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn empty(status: StatusCode) -> HttpResponse<HttpBody> {
    let mut response = HttpResponse::new(HttpBody::default());
    *response.status_mut() = status;
    response
}

/// Refuses a request, and ends the connection: what is left of the body is not read.
fn refusal(status: StatusCode, text: &'static str) -> HttpResponse<HttpBody> {
    let mut response = HttpResponse::new(HttpBody::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The methods that a socket offers on this wire, with their names.
fn offered(scope: Scope) -> impl Iterator<Item = (Method, &'static str)> {
    methods(scope).filter_map(|method| Some((method, name(method)?)))
}

/// A method's name on this wire: that of the interface descriptions in `snake_case`. `None` for a
/// method that answers more than once, which HTTP does not.
const fn name(method: Method) -> Option<&'static str> {
    Some(match method {
        Method::Monitor => return None,
        Method::Allocate => "allocate",
        Method::Ensure => "ensure",
        Method::Deallocate => "deallocate",
        Method::List => "list",
        Method::WhoAmI => "who_am_i",
        Method::GetStatus => "get_status",
        Method::SetModule => "set_module",
        Method::ListModules => "list_modules",
        Method::RemoveModule => "remove_module",
        Method::Claim => "claim",
        Method::Transfer => "transfer",
        Method::Reclaim => "reclaim",
        Method::Import => "import",
        Method::History => "history",
        Method::Backup => "backup",
    })
}

async fn call(
    service: &Service,
    origin: &Origin,
    method: Method,
    params: Option<&str>,
) -> Result<Value, ErrorObjectOwned> {
    match decode(method, raw(params)?, Spelling::SnakeCase) {
        Ok(request) => match service.call(&origin.peer, request, origin.patience_ends).await {
            Ok(reply) => Ok(encode(&reply, Spelling::SnakeCase)),
            Err(error) => Err(error_object(error)),
        },
        Err(BadParameter(name)) => {
            service.refuse(&origin.peer, method, &name);
            Err(bad_parameter(&name))
        }
    }
}

fn raw(params: Option<&str>) -> Result<Option<&RawValue>, ErrorObjectOwned> {
    params.map(serde_json::from_str).transpose().map_err(|_| bad_parameter("params"))
}

/// The refusal of a parameter, by the name that this wire gives it.
fn bad_parameter(name: &str) -> ErrorObjectOwned {
    spelt_error_object(&Error::invalid(name))
}

fn unknown_peer() -> ErrorObjectOwned {
    error_object(Error::PermissionDenied { owner: None })
}

/// The error object for an error of the service.
pub(super) fn error_object(error: Error) -> ErrorObjectOwned {
    spelt_error_object(&spell_error(error, Spelling::SnakeCase))
}

/// The condition's code and name, and its fields as data.
fn spelt_error_object(error: &Error) -> ErrorObjectOwned {
    let row = error.condition().row();
    let mut data = encode(error, Spelling::SnakeCase);
    if let Value::Object(fields) = &mut data {
        fields.insert("error".to_owned(), Value::from(row.name));
    }
    ErrorObjectOwned::owned(row.json_rpc_code, row.name, Some(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_interface_descriptions() {
        for method in Method::ALL {
            let expected = Spelling::SnakeCase.spell(method.name());
            let is_stream = method == Method::Monitor;
            assert_eq!(name(method), (!is_stream).then_some(expected.as_str()));
        }
    }
}
