//! Tables of what is decided, and the whole way in a modelled world with every fault at every step.

mod brought_back;
mod debt;
mod lost;
mod memory;
mod refused;
mod surplus;
mod table;
mod unrestored;
mod walk;
mod world;
