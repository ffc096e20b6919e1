//! The service `ClassifyService`: finds the cell to which a router must send a request. Routers
//! call it over gRPC, or as `POST /v1/classify`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::post;
use axum::{Extension, Router};
use leasehold_core::cell::CellId;
use leasehold_core::claim::Claim;
use leasehold_proto::DescriptorPool;
use leasehold_proto::gitlab::cells::topology_service::classify_service_server::ClassifyService;
use leasehold_proto::gitlab::cells::topology_service::types::v1 as types;
use leasehold_proto::gitlab::cells::topology_service::{
    CellInfo, ClassifyAction, ClassifyPagesRequest, ClassifyPagesResponse, ClassifyRequest, ClassifyResponse,
    ClassifyType, GetCellsRequest, GetCellsResponse, ProxyInfo,
};
use tonic::{Request, Response, Status, async_trait};

use super::{CLASSIFY_HTTP, Services, admitted, bucket, errors};
use crate::active_config::ActiveConfig;
use crate::identity::{Denied, Permit};

/// The most claims in one `ClassifyRequest`.
const MAX_CLAIMS: usize = 100;

/// The handlers of `ClassifyService`.
#[derive(Clone)]
pub struct ClassifyHandler(pub Arc<Services>);

#[async_trait]
impl ClassifyService for ClassifyHandler {
    async fn get_cells(&self, request: Request<GetCellsRequest>) -> Result<Response<GetCellsResponse>, Status> {
        let (_, config) = admitted(&request)?;
        Ok(Response::new(config.all_cells()))
    }

    async fn classify(&self, request: Request<ClassifyRequest>) -> Result<Response<ClassifyResponse>, Status> {
        let (_, config) = admitted(&request)?;
        self.0.classify(&config, request.into_inner()).await.map(Response::new)
    }

    async fn classify_pages(
        &self,
        request: Request<ClassifyPagesRequest>,
    ) -> Result<Response<ClassifyPagesResponse>, Status> {
        let (_, config) = admitted(&request)?;
        self.0.classify_pages(&config, request.into_inner()).await.map(Response::new)
    }
}

impl Services {
    /// Returns the cell that owns the first owned claim of the list (B30). If no cell owns any of
    /// them, or the list is empty, `type` and `value` decide.
    async fn classify(&self, config: &ActiveConfig, request: ClassifyRequest) -> Result<ClassifyResponse, Status> {
        let by_claims = !request.claims.is_empty();
        if let Some((claim, cell)) = self.first_owned(config, &request.claims).await? {
            return Ok(ClassifyResponse { matched_claim: Some(claim), ..proxy(cell) });
        }
        match ClassifyType::try_from(request.r#type) {
            Ok(ClassifyType::Unspecified) if by_claims => Err(errors::not_found("no cell owns any of these claims")),
            Ok(kind) => classify_by_type(config, kind, &request.value).map(proxy),
            Err(_) => Err(errors::invalid("`type` is not known")),
        }
    }

    /// Returns the address at which the cell that owns the first owned claim of the list serves
    /// Pages.
    async fn classify_pages(
        &self,
        config: &ActiveConfig,
        request: ClassifyPagesRequest,
    ) -> Result<ClassifyPagesResponse, Status> {
        if request.claims.is_empty() {
            return Err(errors::invalid("give `claims`"));
        }
        let owned = self.first_owned(config, &request.claims).await?;
        let (claim, cell) = owned.ok_or_else(|| errors::not_found("no cell owns any of these claims"))?;
        let pages = config.pages_address(CellId(cell.id));
        Ok(ClassifyPagesResponse {
            action: ClassifyAction::Proxy.into(),
            pages_address: pages.ok_or_else(|| errors::not_found("the cell that owns the claim serves no Pages"))?,
            matched_claim: Some(claim),
        })
    }

    /// Returns the first claim of the list that a cell owns, and that cell. All claims are read at
    /// one moment. No cell owns an empty claim, or one that its bucket type does not allow.
    async fn first_owned(
        &self,
        config: &ActiveConfig,
        claims: &[types::Claim],
    ) -> Result<Option<(types::Claim, CellInfo)>, Status> {
        if claims.len() > MAX_CLAIMS {
            return Err(errors::over_limit("claims_per_classify", MAX_CLAIMS, Some(claims.len())));
        }
        let mut asked = Vec::with_capacity(claims.len());
        let mut keys = Vec::with_capacity(claims.len());
        for claim in claims {
            if claim.field().is_none() {
                continue;
            }
            let (bucket_type, value) = bucket(config, None, Some(claim))?;
            if let Ok(bucket) = config.rules.catalogue.bucket_of_existing(bucket_type, value.into()) {
                asked.push(claim);
                keys.push(bucket.key);
            }
        }
        if keys.is_empty() {
            return Ok(None);
        }
        let found = self.claims(&keys).await?;
        let owned = |(claim, found): (&types::Claim, Option<Claim>)| Some((claim.clone(), config.cell(found?.owner)?));
        Ok(asked.into_iter().zip(found).find_map(owned))
    }
}

fn classify_by_type(config: &ActiveConfig, kind: ClassifyType, value: &str) -> Result<CellInfo, Status> {
    let mut cells = config.cells();
    let cell = match kind {
        ClassifyType::Unspecified => return Err(errors::invalid("give `claims`, or a `type`")),
        ClassifyType::FirstCell => config.default_cell.and_then(|first| cells.find(|cell| cell.id == first.0)),
        ClassifyType::SessionPrefix if value.is_empty() => return Err(errors::invalid("`value` is empty")),
        ClassifyType::SessionPrefix => cells.find(|cell| cell.session_prefix == value),
        ClassifyType::CellId => {
            let id: i64 = value.parse().map_err(|_| errors::invalid("`value` is not a cell id"))?;
            cells.find(|cell| cell.id == id)
        }
    };
    cell.cloned().ok_or_else(|| errors::not_found("no cell matches"))
}

fn proxy(cell: CellInfo) -> ClassifyResponse {
    ClassifyResponse {
        action: ClassifyAction::Proxy.into(),
        proxy: Some(ProxyInfo { address: cell.address }),
        matched_claim: None,
    }
}

/// The state that the handler of `POST /v1/classify` uses.
#[derive(Clone)]
struct HttpState {
    service: Arc<Services>,
    pool: DescriptorPool,
}

/// Returns the router for `POST /v1/classify`, whose bodies are in proto3 JSON.
pub fn http_router(service: Arc<Services>, pool: DescriptorPool) -> Router {
    // The middleware has limited the size of the body already.
    let limit = DefaultBodyLimit::disable();
    Router::new().route(CLASSIFY_HTTP, post(classify_json).layer(limit)).with_state(HttpState { service, pool })
}

async fn classify_json(
    State(http): State<HttpState>,
    permit: Option<Extension<Permit>>,
    config: Option<Extension<Arc<ActiveConfig>>>,
    body: Bytes,
) -> HttpResponse {
    let (Some(_), Some(Extension(config))) = (permit, config) else {
        return errors::json(&errors::denied(Denied::NoIdentity));
    };
    let name = |message| format!("gitlab.cells.topology_service.{message}");
    let request = leasehold_proto::from_json::<ClassifyRequest>(&http.pool, &name("ClassifyRequest"), &body);
    let answer = match request {
        Ok(request) => http.service.classify(&config, request).await,
        Err(_) => Err(errors::invalid("the body is not a `ClassifyRequest` in JSON")),
    };
    let bytes = answer.and_then(|response| {
        let bytes = leasehold_proto::to_json(&http.pool, &name("ClassifyResponse"), &response);
        bytes.map_err(|_| errors::internal("the response can't be written as JSON"))
    });
    match bytes {
        Ok(bytes) => ([(http::header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(status) => errors::json(&status),
    }
}
