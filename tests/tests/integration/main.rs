//! Each part against the real servers it needs: Postgres, Kafka, an API server without controllers, the AWS endpoint.

mod backend;
mod bus;
mod cloud_aws;
mod endpoint;
mod front;
mod node_agent;
mod operator;
mod own;
mod provisioner;
mod store;
mod support;
mod tokens;
