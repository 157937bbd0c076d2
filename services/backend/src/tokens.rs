//! Tokens: 256 random bits that are shown once, and of which only the SHA-256 is kept.

use std::time::Duration;

use domain::TenantId;
use store::{NewToken, Role, Store};
use uuid::Uuid;

/// What our secrets begin with, so that people and scanners know them when they see one.
const PREFIX: &str = "slipway_";
/// The most days that one lasts: beyond the life of whoever it is for.
const LONGEST: u32 = 36_500;

/// A token to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// What it may do.
    pub role: Role,
    /// Its tenant, exactly for [`Role::Tenant`].
    pub tenant: Option<TenantId>,
    /// Name for people.
    pub name: String,
    /// Days until it ends by itself.
    pub days: Option<u32>,
}

/// Why a token was not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A tenant is missing, or there is one too many.
    #[error("give --tenant for role tenant, and for no other role")]
    Tenant,
    /// A time that nobody lives to see.
    #[error(
        "a token lasts at most {LONGEST} days, and not {days}: leave the number out for one that does not end by itself"
    )]
    Days {
        /// As given.
        days: u32,
    },
    /// No randomness.
    #[error("draw random bytes")]
    Random(#[source] getrandom::Error),
    /// It was not stored.
    #[error("store the token")]
    Store(#[source] store::Error),
}

/// Makes a token and gives its secret, which nobody can read again.
pub async fn create(store: &Store, wish: Wish) -> Result<String, Error> {
    if (wish.role == Role::Tenant) != wish.tenant.is_some() {
        return Err(Error::Tenant);
    }
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(Error::Random)?;
    let secret = format!("{PREFIX}{}", hex::encode(random));
    if let Some(days) = wish.days.filter(|days| *days > LONGEST) {
        return Err(Error::Days { days });
    }
    let token = NewToken {
        id: Uuid::now_v7(),
        hash: crate::api::hash(&secret),
        role: wish.role,
        tenant: wish.tenant,
        name: wish.name,
        lasts: wish.days.map(|days| Duration::from_hours(u64::from(days) * 24)),
    };
    store.create_token(&token).await.map_err(Error::Store)?;
    Ok(secret)
}
