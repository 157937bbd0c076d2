//! A record as it is sent and as it is read: bytes, nothing more.

use std::sync::Arc;

use rdkafka::Message as _;
use rdkafka::message::{BorrowedMessage, Header, Headers as _, OwnedHeaders};

/// A record to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Where it goes.
    pub topic: String,
    /// Decides the partition, and with it the order.
    pub key: String,
    /// Content.
    pub payload: Vec<u8>,
    /// Name and value, among them `traceparent`.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl Message {
    pub(crate) fn owned_headers(&self) -> OwnedHeaders {
        let start = OwnedHeaders::new_with_capacity(self.headers.len());
        self.headers.iter().fold(start, |headers, (name, value)| {
            headers.insert(Header { key: name.as_str(), value: Some(value.as_slice()) })
        })
    }
}

/// A record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Topic it stands in.
    pub topic: Arc<str>,
    /// Partition of it.
    pub partition: i32,
    /// Place in the partition.
    pub offset: i64,
    /// When it was written, in milliseconds since 1970, by the producer's or the broker's clock.
    pub timestamp_ms: Option<i64>,
    /// Its key, if it has one.
    pub key: Option<Vec<u8>>,
    /// Its content, if it has any.
    pub payload: Option<Vec<u8>>,
    /// Headers in their order; one without a value has an empty one.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl Record {
    /// Copies a record out of the library's memory.
    pub(crate) fn copy(topic: &Arc<str>, message: &BorrowedMessage<'_>) -> Self {
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            headers.iter().map(|h| (h.key.to_owned(), h.value.unwrap_or_default().to_vec())).collect()
        });
        Self {
            topic: Arc::clone(topic),
            partition: message.partition(),
            offset: message.offset(),
            timestamp_ms: message.timestamp().to_millis(),
            key: message.key().map(<[u8]>::to_vec),
            payload: message.payload().map(<[u8]>::to_vec),
            headers,
        }
    }

    /// A record with nothing in it.
    #[cfg(test)]
    pub(crate) fn bare(partition: i32, offset: i64) -> Self {
        let (key, payload, headers) = (None, None, Vec::new());
        Self { topic: "t".into(), partition, offset, timestamp_ms: None, key, payload, headers }
    }

    /// The last header of that name.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_slice())
    }

    /// The last header of that name, if it is text.
    pub fn header_text(&self, name: &str) -> Option<&str> {
        self.header(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The key, if it is text.
    pub fn key_text(&self) -> Option<&str> {
        self.key.as_deref().and_then(|key| std::str::from_utf8(key).ok())
    }

    /// Bytes of key, content and headers together.
    pub fn bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.key.as_ref().map_or(0, Vec::len) + self.payload.as_ref().map_or(0, Vec::len) + headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_header_counts() {
        let record = Record {
            topic: "t".into(),
            partition: 0,
            offset: 0,
            timestamp_ms: None,
            key: Some(b"k".to_vec()),
            payload: None,
            headers: vec![
                ("a".to_owned(), b"1".to_vec()),
                ("a".to_owned(), b"22".to_vec()),
                ("b".to_owned(), vec![0xff]),
            ],
        };
        assert_eq!(record.header_text("a"), Some("22"));
        assert_eq!(record.header("b"), Some(&[0xff][..]));
        assert_eq!(record.header_text("b"), None);
        assert_eq!(record.key_text(), Some("k"));
        assert_eq!(record.bytes(), 1 + 2 + 3 + 2);
    }
}
