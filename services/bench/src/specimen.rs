//! One database made by the product, to be the model of what the bare servers are given: the same bodies in rows and
//! resources. Read with the tools anybody has.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::ListParams;
use resources::{QuestDB, names};
use testkit::stack;

use crate::ground::Ground;
use crate::pace::until;

const PATIENCE: Duration = Duration::from_mins(1);

/// A database as the product made it.
#[derive(Debug)]
pub(crate) struct Specimen {
    /// Its identity.
    pub(crate) id: String,
    /// Its resource.
    pub(crate) resource: QuestDB,
}

impl Specimen {
    /// Has one made, and waits until the cluster's word of it is in Postgres.
    pub(crate) async fn make(ground: &Ground) -> anyhow::Result<Self> {
        let id = ground.create("specimen").await?.id;
        ground.settle().await?;
        let api = ground.resources();
        let selector = ListParams::default().labels(&format!("{}={id}", names::LABEL_DATABASE));
        let resource = until(PATIENCE, "the resource of a database", async || {
            Ok(api.list(&selector).await?.items.pop())
        });
        Ok(Self { resource: resource.await?, id })
    }

    /// A column of one of its rows, as text; `table` has a column `database_id`, or is `databases` itself.
    async fn column(&self, table: &str, column: &str) -> anyhow::Result<String> {
        let key = if table == "databases" { "id" } else { "database_id" };
        let statement = format!("select {column} from {table} where {key} = '{}' limit 1", self.id);
        testkit::query(&stack().database_url, &statement).await
    }

    /// What the scripts of the anchors need, by the names they have there.
    pub(crate) async fn variables(&self) -> anyhow::Result<Vec<(&'static str, String)>> {
        let tenant = self.column("databases", "tenant_id").await?;
        let answer = format!(
            "select body from idempotency_keys where tenant_id = '{tenant}' order by created_at desc limit 1"
        );
        let answer = testkit::query(&stack().database_url, &answer).await?;
        let detail = format!("select detail from audit where subject = '{}' limit 1", self.id);
        let detail = testkit::query(&stack().database_url, &detail).await?;
        Ok(vec![
            ("tenant", tenant),
            ("cluster", self.column("databases", "cluster_id").await?),
            ("desired", self.column("databases", "desired").await?),
            ("hash", self.column("databases", "content_hash").await?),
            ("actor", self.column("operations", "actor").await?),
            ("trace", self.column("operations", "coalesce(traceparent, '')").await?),
            ("observed", self.column("observations", "body").await?),
            ("answer", answer),
            ("detail", detail),
        ])
    }

    /// Another resource with the same body.
    pub(crate) fn twin(&self, name: &str, namespace: &str) -> QuestDB {
        let mut twin = QuestDB::new(name, self.resource.spec.clone());
        twin.metadata.namespace = Some(namespace.to_owned());
        twin.metadata.labels = Some(self.resource.labels().clone());
        twin.metadata.annotations = Some(self.resource.annotations().clone());
        twin
    }

    /// Another resource with the same body, that no instruction made: nobody speaks of it, and anybody may remove it.
    pub(crate) fn stranger(&self, name: &str, namespace: &str) -> QuestDB {
        let mut stranger = self.twin(name, namespace);
        stranger.spec.instruction = None;
        stranger
    }
}
