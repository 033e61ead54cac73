//! One connection, its calls, and the token that they carry.

use std::sync::Arc;

use futures_util::stream;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::{Mutex, mpsc};
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::{
    AuthenticateRequest, AuthenticateResponse, Done, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, PutRequest,
    TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};
use crate::error;

/// The largest answer that is read: a line of a thousand candidates with the largest values.
const MAX_ANSWER_BYTES: usize = 128 * 1024 * 1024;

/// How many requests may wait in a stream until they can be sent.
const MAX_QUEUED: usize = 100;

/// A connection to one server, or to whatever a channel leads to.
///
/// Requests ask for a member that knows a leader: one that is cut off from the others would be
/// silent. Clones share the connection and the token.
#[derive(Clone)]
pub struct Client {
    grpc: Grpc<Channel>,
    user: Option<Arc<User>>,
}

/// Who we are, and the token that stands for it. `None`: it has to be asked for.
struct User {
    name: String,
    password: String,
    token: Mutex<Option<Token>>,
}

type Token = MetadataValue<Ascii>;

/// A stream in both directions. It ends when it is dropped.
pub struct Stream<Q, A> {
    pub requests: mpsc::Sender<Q>,
    pub answers: Streaming<A>,
}

impl Client {
    /// `user`: a name and a password.
    pub fn new(channel: Channel, user: Option<(String, String)>) -> Client {
        let user = user.map(|(name, password)| Arc::new(User { name, password, token: Mutex::default() }));
        Client { grpc: Grpc::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES), user }
    }

    pub async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, Status> {
        self.unary("/etcdserverpb.KV/Txn", txn).await
    }

    pub async fn put(&self, put: PutRequest) -> Result<Done, Status> {
        self.unary("/etcdserverpb.KV/Put", put).await
    }

    pub async fn lease_grant(&self, request: LeaseGrantRequest) -> Result<LeaseGrantResponse, Status> {
        self.unary("/etcdserverpb.Lease/LeaseGrant", request).await
    }

    pub async fn lease_revoke(&self, id: i64) -> Result<Done, Status> {
        self.unary("/etcdserverpb.Lease/LeaseRevoke", LeaseRevokeRequest { id }).await
    }

    pub async fn lease_time_to_live(&self, id: i64, keys: bool) -> Result<LeaseTimeToLiveResponse, Status> {
        self.unary("/etcdserverpb.Lease/LeaseTimeToLive", LeaseTimeToLiveRequest { id, keys }).await
    }

    /// A stream on which the first keep-alive has been sent.
    pub async fn lease_keep_alive(
        &self,
        id: i64,
    ) -> Result<Stream<LeaseKeepAliveRequest, LeaseKeepAliveResponse>, Status> {
        self.streaming("/etcdserverpb.Lease/LeaseKeepAlive", LeaseKeepAliveRequest { id }).await
    }

    /// A stream on which the first watch has been asked for.
    pub async fn watch(&self, first: WatchCreateRequest) -> Result<Stream<WatchRequest, WatchResponse>, Status> {
        self.streaming("/etcdserverpb.Watch/Watch", WatchRequest::from(first)).await
    }

    /// The next call asks for a new token.
    pub async fn forget_token(&self) {
        if let Some(user) = &self.user {
            *user.token.lock().await = None;
        }
    }

    /// The token that calls carry, which is asked for if there is none. `None`: there is no user.
    pub async fn token(&self) -> Result<Option<Token>, Status> {
        let Some(user) = &self.user else { return Ok(None) };
        let mut token = user.token.lock().await;
        if token.is_none() {
            let request = AuthenticateRequest { name: user.name.clone(), password: user.password.clone() };
            let path = PathAndQuery::from_static("/etcdserverpb.Auth/Authenticate");
            let mut grpc = self.ready().await?;
            let answer = grpc.unary(asking(request, None), path, ProstCodec::default()).await?;
            let AuthenticateResponse { token: fresh } = answer.into_inner();
            *token = Some(fresh.parse().map_err(|_| Status::internal("the server gave a token that cannot be sent"))?);
        }
        Ok(token.clone())
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let send = |token| {
            let request = asking(request.clone(), token);
            async move {
                let path = PathAndQuery::from_static(path);
                Ok(self.ready().await?.unary(request, path, ProstCodec::default()).await?.into_inner())
            }
        };
        self.with_token(send).await
    }

    async fn streaming<Q, A>(&self, path: &'static str, first: Q) -> Result<Stream<Q, A>, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let send = |token| {
            let (requests, mut queue) = mpsc::channel(MAX_QUEUED);
            // Servers answer a stream with the answer to its first request. There is room for it.
            _ = requests.try_send(first.clone());
            let sent = asking(stream::poll_fn(move |cx| queue.poll_recv(cx)), token);
            async move {
                let path = PathAndQuery::from_static(path);
                let answers = self.ready().await?.streaming(sent, path, ProstCodec::default()).await?.into_inner();
                Ok(Stream { requests, answers })
            }
        };
        self.with_token(send).await
    }

    /// A request whose token is refused did nothing: it is sent again with a new one, once.
    async fn with_token<A, R>(&self, send: impl Fn(Option<Token>) -> R) -> Result<A, Status>
    where
        R: Future<Output = Result<A, Status>>,
    {
        let token = self.token().await?;
        let refused = match send(token.clone()).await {
            Err(refused) if token.is_some() && error::wants_new_token(&refused) => refused,
            answer => return answer,
        };
        match self.another_token(token).await {
            Ok(token) => send(token).await,
            // The next call asks again, and says why there is none.
            Err(_) => Err(refused),
        }
    }

    async fn another_token(&self, refused: Option<Token>) -> Result<Option<Token>, Status> {
        if let Some(user) = &self.user {
            // Others may have been refused as well, and one of them was first.
            user.token.lock().await.take_if(|token| Some(&*token) == refused.as_ref());
        }
        self.token().await
    }

    async fn ready(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        Ok(grpc)
    }
}

fn asking<Q>(request: Q, token: Option<Token>) -> Request<Q> {
    let mut request = Request::new(request);
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        metadata.insert("authorization", token);
    }
    request
}
