//! A change of desired state: one transaction in which the row is locked, the position raised, and desired state,
//! operation, history, stored answer and audit written, or none of them.

use std::time::Duration;

use domain::{
    ClusterId, DatabaseId, Desired, Disk, OnFailure, OperationId, OperationKind, Position, TenantId,
};
use sqlx::Postgres;

use crate::mint::{self, Place};
use crate::{Database, Error, Store, observations};

/// A transaction that is rolled back unless committed.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) inner: sqlx::Transaction<'static, Postgres>,
}

/// A database that is not there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDatabase {
    /// Identity.
    pub id: DatabaseId,
    /// Whose.
    pub tenant: TenantId,
    /// Where it is to live.
    pub cluster: ClusterId,
}

/// A desired state to be minted.
#[derive(Debug, Clone)]
pub struct Mint {
    /// What is asked for.
    pub kind: OperationKind,
    /// What should be from now on.
    pub desired: Desired,
    /// Who asks.
    pub actor: String,
    /// Trace of the request.
    pub traceparent: Option<String>,
    /// The content hash of a desired state.
    pub hash: fn(&Desired) -> String,
    /// What becomes of it if it does not succeed.
    pub terms: Terms,
}

/// What becomes of an operation that does not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long it may take, by the database's clock.
    pub deadline: Duration,
    /// What to do if it fails for good.
    pub on_failure: OnFailure,
    /// The operation that it takes back.
    pub reverts: Option<OperationId>,
}

impl Terms {
    /// The usual ones: what fails, or takes longer, is taken back.
    pub const fn within(deadline: Duration) -> Self {
        Self { deadline, on_failure: OnFailure::Revert, reverts: None }
    }
}

/// What was minted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Minted {
    /// Where it stands.
    pub position: Position,
    /// The operation that asked for it.
    pub operation: OperationId,
}

impl Store {
    /// Begins a transaction.
    pub async fn begin(&self) -> Result<Transaction, Error> {
        Ok(Transaction { inner: self.pool.begin().await.map_err(Error::from_sqlx)? })
    }
}

impl Transaction {
    /// Makes everything of this transaction last. After an error that is transient it is unknown whether it did.
    pub async fn commit(self) -> Result<(), Error> {
        self.inner.commit().await.map_err(Error::from_sqlx)
    }

    /// Mints the first desired state of a new database.
    pub async fn create(&mut self, new: &NewDatabase, mint: Mint) -> Result<Minted, Error> {
        mint::write(&mut self.inner, Place::New(new), Position::FIRST, &mint).await
    }

    /// What its cluster tells of the disk of a locked database.
    pub async fn disk(&mut self, locked: &Database) -> Result<Disk, Error> {
        Ok(observations::held(&mut self.inner, locked.id).await?.disk)
    }

    /// Mints the next desired state of a locked database.
    ///
    /// A volume that was seen enters the desired state here: from then on its absence is an alarm, and the size that it has is
    /// the least that is asked for. Where the cluster is known to hold what was never minted (rows were lost), the new state
    /// stands above that too, and asks for no less than that does.
    pub async fn change(&mut self, locked: &Database, mint: Mint) -> Result<Minted, Error> {
        let held = observations::held(&mut self.inner, locked.id).await?;
        let size = mint.desired.storage.size_gib;
        let (position, size) = match held.position.filter(|held| *held > locked.position) {
            Some(ahead) => (locked.position.above(ahead), held.disk.certain(size)),
            None => (locked.position.next(), held.disk.raised(size)),
        };
        self.mint(locked, position.ok_or(Error::Exhausted)?, size, mint).await
    }

    /// Mints a desired state of a locked database once more, no smaller than anything that its cluster shows, so that it is not
    /// refused for its size. Where `held`, which the cluster holds, was never minted, rows were lost, and what is left of them wins:
    /// the new state stands above that too.
    pub async fn repair(&mut self, locked: &Database, held: Position, mint: Mint) -> Result<Minted, Error> {
        let above = if held > locked.position { locked.position.above(held) } else { locked.position.next() };
        let position = above.ok_or(Error::Exhausted)?;
        let size = self.disk(locked).await?.certain(mint.desired.storage.size_gib);
        self.mint(locked, position, size, mint).await
    }

    async fn mint(
        &mut self,
        locked: &Database,
        position: Position,
        size_gib: u32,
        mut mint: Mint,
    ) -> Result<Minted, Error> {
        let storage = &mut mint.desired.storage;
        storage.provisioned |= locked.provisioned || locked.desired.storage.provisioned;
        storage.size_gib = size_gib;
        mint::write(&mut self.inner, Place::Locked(locked), position, &mint).await
    }
}
