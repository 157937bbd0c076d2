//! A change of desired state: one transaction in which the row is locked, the position raised, and desired state,
//! operation, history, stored answer and audit written, or none of them.

use std::time::Duration;

use domain::{ClusterId, DatabaseId, Desired, OnFailure, OperationId, OperationKind, Position, TenantId};
use sqlx::Postgres;

use crate::mint::{self, Place};
use crate::observations::{self, Held};
use crate::{Database, Error, Store};

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

    /// Mints the next desired state of a locked database.
    ///
    /// A volume that was seen enters the desired state here: from then on its absence is an alarm, and the size that it
    /// has, or is growing to, is the least that is asked for. Where the cluster is known to hold what was never minted (rows
    /// were lost), the new state stands above that too.
    pub async fn change(&mut self, locked: &Database, mint: Mint) -> Result<Minted, Error> {
        let held = observations::held(&mut self.inner, locked.id).await?;
        let ahead = held.and_then(|held| held.position).filter(|held| *held > locked.position);
        let position = match ahead {
            Some(ahead) => locked.position.above(ahead),
            None => locked.position.next(),
        };
        self.mint(locked, position.ok_or(Error::Exhausted)?, held, mint).await
    }

    /// Mints a desired state of a locked database above `held`, which its cluster holds although it was never minted:
    /// rows were lost, and what is left of them wins.
    pub async fn repair(&mut self, locked: &Database, held: Position, mint: Mint) -> Result<Minted, Error> {
        let position = locked.position.above(held).ok_or(Error::Exhausted)?;
        let held = observations::held(&mut self.inner, locked.id).await?;
        self.mint(locked, position, held, mint).await
    }

    async fn mint(
        &mut self,
        locked: &Database,
        position: Position,
        held: Option<Held>,
        mut mint: Mint,
    ) -> Result<Minted, Error> {
        let storage = &mut mint.desired.storage;
        storage.provisioned |= locked.provisioned || locked.desired.storage.provisioned;
        // A volume cannot shrink, and the attempt would be refused: rows may be lost that knew how it grew.
        let size_gib = held.and_then(|held| held.size_gib).unwrap_or(0);
        storage.size_gib = storage.size_gib.max(size_gib);
        mint::write(&mut self.inner, Place::Locked(locked), position, &mint).await
    }
}
