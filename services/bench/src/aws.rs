//! An endpoint of EC2 and Route 53 that checks nothing and takes no time: what it answers is the caller's, in AWS's words.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::fake::{Request, read};

/// The endpoint; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// Where it is.
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Starts it; everything is answered with 200 and this.
    pub(crate) async fn start(
        answer: impl Fn(&Request) -> String + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listening")?;
        let url = format!("http://{}", listener.local_addr()?);
        let answer = Arc::new(answer);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A connection that breaks is the other side's business.
                tokio::spawn(serve(stream, Arc::clone(&answer)));
            }
        });
        Ok(Self { url, task })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, answer: Arc<impl Fn(&Request) -> String>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = Vec::new();
    while let Some(request) = read(&mut stream, &mut input).await? {
        let body = answer(&request);
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/xml\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
    }
    Ok(())
}

/// EC2's answer to an action.
pub(crate) fn ec2(action: &str, inner: &str) -> String {
    format!(
        "<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>bench</requestId>{inner}\
         </{action}Response>"
    )
}

/// Route 53's answer for a zone in which there is nothing, and every change is everywhere at once.
pub(crate) fn empty_zone(request: &Request) -> String {
    let space = "xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"";
    if request.method == "GET" {
        return format!(
            "<ListResourceRecordSetsResponse {space}><ResourceRecordSets/><IsTruncated>false</IsTruncated>\
             <MaxItems>100</MaxItems></ListResourceRecordSetsResponse>"
        );
    }
    format!(
        "<ChangeResourceRecordSetsResponse {space}><ChangeInfo><Id>/change/C1</Id><Status>INSYNC</Status>\
         <SubmittedAt>2026-01-01T00:00:00.000Z</SubmittedAt></ChangeInfo></ChangeResourceRecordSetsResponse>"
    )
}

/// Whether it is for Route 53.
pub(crate) fn is_for_route53(request: &Request) -> bool {
    request.path.contains("/2013-04-01/")
}
