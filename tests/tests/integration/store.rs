//! `store` against a real Postgres: a fresh database for each test.

#![cfg(test)]

use std::collections::BTreeMap;
use std::time::Duration;

use ::store::{Mint, Minted, NewDatabase, Observation, Outcome, OutcomeKind, Settings, Store, Terms};
use domain::catalogue::Offer;
use domain::request::Create;
use domain::{Cluster, ClusterState, DatabaseId, Desired, OperationId, OperationKind, Position, TenantId};
use serde_json::json;
use testkit::query;

use crate::support::{database, patient};

mod absorb;
mod aside;
mod endings;
mod failover;
mod keys;
mod mint;
mod observers;
mod outbox;
mod plain;
mod programs;
mod schema;
mod sizes;
mod states;
mod sweep;
mod walks;

/// A database with its tenant and two clusters, to try things on.
struct Try {
    store: Store,
    url: String,
    tenant: TenantId,
}

/// A database that was created in a [`Try`].
#[derive(Debug, Clone)]
struct Created {
    id: DatabaseId,
    desired: Desired,
    first: Minted,
}

const fn at(seq: i64) -> Position {
    Position { epoch: 1, seq }
}

fn hash(desired: &Desired) -> String {
    format!("{desired:?}")
}

fn cluster(id: &str) -> Cluster {
    Cluster {
        id: id.parse().unwrap(),
        region: id.to_owned(),
        account: "000000000000".to_owned(),
        zones: BTreeMap::from([(format!("{id}a"), "subnet-1".to_owned())]),
        hosted_zone_id: "Z1".to_owned(),
        dns_suffix: "example.com".to_owned(),
        namespace_template: "qdb-{tenant}".to_owned(),
        state: ClusterState::Active,
        credentials: "file:x".to_owned(),
    }
}

fn mint(kind: OperationKind, desired: &Desired) -> Mint {
    let (actor, terms) = ("tenant:test".to_owned(), Terms::within(Duration::from_hours(1)));
    Mint { kind, desired: desired.clone(), actor, traceparent: None, hash, terms }
}

impl Try {
    async fn new() -> Self {
        let (store, url) = database().await;
        let tenant: TenantId = "acme".parse().unwrap();
        store.ensure_tenant(&tenant).await.unwrap();
        for id in ["eu-west-1", "us-east-1"] {
            store.put_cluster(&cluster(id)).await.unwrap();
        }
        Self { store, url, tenant }
    }

    /// The same for many who ask for the same rows at once: each waits for those before it, and a busy machine may take long with
    /// them.
    async fn crowded() -> Self {
        let scene = Self::new().await;
        Self { store: scene.waiting(), ..scene }
    }

    fn desired(id: DatabaseId, name: &str) -> Desired {
        let wish = Create { name: name.to_owned(), region: "eu-west-1".to_owned(), ..Create::default() };
        wish.validate(&Offer::default()).unwrap().place(id, &cluster("eu-west-1"))
    }

    /// Creates a database in `eu-west-1`.
    async fn create(&self, name: &str) -> Created {
        self.try_create(name).await.unwrap()
    }

    async fn try_create(&self, name: &str) -> Result<Created, ::store::Error> {
        let id = DatabaseId::mint();
        let desired = Self::desired(id, name);
        let new = NewDatabase { id, tenant: self.tenant.clone(), cluster: "eu-west-1".parse().unwrap() };
        let mut transaction = self.store.begin().await?;
        let first = transaction.create(&new, mint(OperationKind::Create, &desired)).await?;
        transaction.commit().await?;
        Ok(Created { id, desired, first })
    }

    /// Mints a change of a database.
    async fn change(&self, id: DatabaseId, edit: impl FnOnce(&mut Desired)) -> Minted {
        let mut transaction = self.store.begin().await.unwrap();
        let locked = transaction.lock_database(None, id).await.unwrap().unwrap();
        let mut desired = locked.desired.clone();
        edit(&mut desired);
        let minted = transaction.change(&locked, mint(OperationKind::Update, &desired)).await.unwrap();
        transaction.commit().await.unwrap();
        minted
    }

    /// A store of the same rows that waits for them until the test has seen that it does: a busy machine may take longer to
    /// look than a lock is waited for usually.
    fn waiting(&self) -> Store {
        let long = Duration::from_mins(2);
        // Where more ask at once than there are connections, they wait for those as well.
        let settings = Settings { acquire: long, lock: long, statement: long, ..patient() };
        Store::connect(&self.url, &settings).unwrap()
    }

    /// A single value that a statement gives.
    async fn ask(&self, statement: &str) -> String {
        query(&self.url, statement).await.unwrap()
    }
}

/// Outcomes as whoever tells them knows them: each of the operation that its instruction was minted for.
pub(crate) async fn as_minted(url: &str, mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    for Outcome { database, position: Position { epoch, seq }, operation, .. } in &mut outcomes {
        let minted = format!(
            "select max(operation_id::text) from instructions \
             where (database_id, epoch, seq) = ('{database}', {epoch}, {seq})"
        );
        *operation = query(url, &minted).await.unwrap().parse().unwrap();
    }
    outcomes
}

fn observation(database: DatabaseId, position: Position) -> Observation {
    Observation {
        database,
        cluster: "eu-west-1".parse().unwrap(),
        position,
        term: 1,
        resource_version: 1,
        present: true,
        content_hash: String::new(),
        phase: "Creating".to_owned(),
        carried_out: None,
        volume: false,
        steps: Vec::new(),
        body: json!({}).into(),
        body_schema: 1,
        said_at: jiff::Timestamp::now(),
    }
}

/// Of an operation that nobody has, before [`as_minted`].
fn outcome(database: DatabaseId, position: Position, kind: OutcomeKind) -> Outcome {
    Outcome {
        operation: OperationId::mint(),
        database,
        cluster: "eu-west-1".parse().unwrap(),
        position,
        kind,
        code: "reason".to_owned(),
        message: "why".to_owned(),
        said_at: jiff::Timestamp::now(),
    }
}
