//! A size that was typed too large: it is taken back to what the disk has, and what the disk has by then is not.

use ::store::{Observation, OutcomeKind};
use domain::DatabaseId;
use resources::names::condition::VOLUME_RESIZING;
use serde_json::{Value, json};

use super::{App, id_of, observation, outcome, path_of, text};

/// What a cluster shows that holds the second position and has carried out the first: the sizes that its disk has and that are asked
/// for, and whether EC2 changes it.
fn sized(database: DatabaseId, (has, asked): (u32, u32), changing: &str) -> Observation {
    let body = json!({
        "phase": "Updating", "epoch": 1, "seq": 1, "steps": [],
        "conditions": [{"type": VOLUME_RESIZING, "status": changing, "reason": "Why", "message": ""}],
        "volume_size_gib": has, "asked_size_gib": asked,
        "namespace": "", "resource_name": "", "credentials_secret": "",
    });
    Observation { volume: true, body: body.into(), ..observation(database, 2, 1) }
}

#[tokio::test]
async fn a_size_that_is_not_carried_out_is_taken_back_to_no_less_than_the_disk_has() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    let asked =
        async |etag: &str, size: u32| app.patch(id, etag, &json!({"storage": {"size_gib": size}})).await;
    let refused = async |size: u32, why: &str| {
        let answer = asked("\"1-2\"", size).await;
        assert_eq!((answer.status.as_u16(), answer.errors()), (422, vec![("/storage/size_gib", "shrinks")]));
        let detail = text(&answer.body["errors"][0]["detail"]);
        assert!(detail.contains(why), "{detail}");
    };
    let shown = async |sizes: (u32, u32), changing: &str| {
        app.hear(vec![sized(id_of(&made), sizes, changing)], Vec::new()).await;
    };
    assert_eq!(asked("\"1-1\"", 5_000).await.status, 202);
    refused(500, "it is 5000 GiB now").await;
    shown((60, 5_000), "True").await;
    refused(500, "it is 5000 GiB now").await;
    shown((60, 5_000), "False").await;
    refused(59, "no less than 60 GiB").await;
    let taken = asked("\"1-2\"", 500).await;
    assert_eq!((taken.status.as_u16(), &taken.body["database"]["storage"]["size_gib"]), (202, &json!(500)));

    // Whatever is asked for next has the smaller size, although the resource has not heard of that yet.
    let size = async |verb: &str| app.act(id, verb).await.body["database"]["storage"]["size_gib"].clone();
    assert_eq!(size("pause").await, json!(500));
    // EC2 had begun with it all the same.
    shown((5_000, 5_000), "False").await;
    assert_eq!(size("resume").await, json!(5_000), "no disk shrinks");
}

#[tokio::test]
async fn what_goes_back_does_so_in_its_size_unless_the_disk_has_it_or_is_being_given_it() {
    let app = App::new().await;
    for (has, changing, expected) in [(50, "False", 50), (80, "False", 80), (50, "True", 5_000)] {
        for cancelled in [true, false] {
            let name = format!("trades-{expected}-{cancelled}");
            let made = app.running(&name).await;
            let wish = json!({"storage": {"size_gib": 5_000}, "config": {"a.b": "1"}});
            let changed = app.patch(text(&made["database"]["id"]), "\"1-1\"", &wish).await.body;
            app.hear(vec![sized(id_of(&made), (has, 5_000), changing)], Vec::new()).await;
            goes_back(&app, &changed, cancelled).await;
            let shown = app.database(&made).await;
            assert_eq!(
                (&shown["storage"]["size_gib"], &shown["config"]),
                (&json!(expected), &json!({})),
                "{name}"
            );
        }
    }
}

/// A change goes back because it is cancelled, or because its time runs out.
async fn goes_back(app: &App, changed: &Value, cancelled: bool) {
    let path = path_of(changed);
    if cancelled {
        assert_eq!(app.cancel(&app.acme, &path, &path.replace('/', "-")).await.status, 202, "{path}");
    } else {
        app.run_out(changed).await;
        assert_eq!(app.judged().await.reverted, 1, "{path}");
    }
}

#[tokio::test]
async fn a_size_that_the_disk_has_by_then_is_refused_and_goes_back() {
    let app = App::new().await;
    let made = app.running("trades").await;
    let id = text(&made["database"]["id"]);
    app.patch(id, "\"1-1\"", &json!({"storage": {"size_gib": 5_000}})).await;
    app.hear(vec![sized(id_of(&made), (50, 5_000), "False")], Vec::new()).await;
    let back = json!({"storage": {"size_gib": 500}, "config": {"a.b": "1"}});
    let changed = app.patch(id, "\"1-2\"", &back).await;
    assert_eq!(changed.status, 202, "{changed:?}");
    // Of how large the disk is by now nobody heard yet.
    app.hear(Vec::new(), vec![outcome(id_of(&made), 3, OutcomeKind::Refused)]).await;
    assert_eq!(text(&app.operation(&path_of(&changed.body)).await["state"]), "failed");
    assert_eq!(app.judged().await.reverted, 1);
    let shown = app.database(&made).await;
    assert_eq!((&shown["storage"]["size_gib"], &shown["config"]), (&json!(5_000), &json!({})));
}
