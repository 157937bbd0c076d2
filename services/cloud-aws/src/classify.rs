//! The one table from AWS's codes to our errors. Pure.

use cloud::ResourceKind;

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    NotFound(ResourceKind),
    AlreadyExists,
    InUse,
    Throttled,
    Capacity,
    Quota,
    ParameterMismatch,
    IncorrectState,
    TooSoon,
    NotPermitted,
    Denied,
    WrongTime,
    Invalid,
    Unavailable,
    Unrecognised,
}

/// Classes by code; where a code says several things, by its words; where it is new, by its form and the HTTP status.
pub(crate) fn classify(code: &str, message: &str, status: u16, subject: ResourceKind) -> Class {
    by_code(code)
        .or_else(|| by_words(code, message))
        .or_else(|| not_found(code))
        .unwrap_or_else(|| by_form(code, status, subject))
}

/// Codes that mean one thing, by what they mean.
const CODES: &[(Class, &[&str])] = &[
    (Class::AlreadyExists, &["InvalidGroup.Duplicate", "InvalidPermission.Duplicate"]),
    (
        Class::InUse,
        &[
            "VolumeInUse",
            "DependencyViolation",
            "InvalidGroup.InUse",
            "InvalidSnapshot.InUse",
            "ResourceInUse",
        ],
    ),
    (
        Class::Throttled,
        &[
            "RequestLimitExceeded",
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "TooManyRequestsException",
            "EC2ThrottledException",
            "SlowDown",
            // Route 53 has not finished the last change of this zone: to come back later is all that there is to do.
            "PriorRequestNotComplete",
        ],
    ),
    (
        // All of these can be otherwise in another zone, or later.
        Class::Capacity,
        &[
            "InsufficientInstanceCapacity",
            "InsufficientHostCapacity",
            "InsufficientReservedInstanceCapacity",
            "InsufficientCapacity",
            "InsufficientCapacityOnHost",
            "InsufficientVolumeCapacity",
            "InsufficientFreeAddressesInSubnet",
        ],
    ),
    (
        Class::Quota,
        &[
            "InstanceLimitExceeded",
            "VcpuLimitExceeded",
            "VolumeLimitExceeded",
            "MaxIOPSLimitExceeded",
            "VolumeModificationSizeLimitExceeded",
            "AttachmentLimitExceeded",
            "SecurityGroupLimitExceeded",
            "SecurityGroupsPerInstanceLimitExceeded",
            "SecurityGroupsPerInterfaceLimitExceeded",
            "RulesPerSecurityGroupLimitExceeded",
            "ResourceLimitExceeded",
            "TagLimitExceeded",
            "LimitsExceeded",
            "PendingVerification",
        ],
    ),
    (Class::ParameterMismatch, &["IdempotentParameterMismatch", "IdempotentInstanceTerminated"]),
    (
        Class::IncorrectState,
        &["IncorrectInstanceState", "IncorrectState", "IncorrectStateException", "InvalidNextToken"],
    ),
    (
        Class::TooSoon,
        &[
            "VolumeModificationRateExceeded",
            "IncorrectModificationState",
            "SnapshotCreationPerVolumeRateExceeded",
            // Those under way have to end first; nobody has to raise anything.
            "ConcurrentSnapshotLimitExceeded",
            "PendingSnapshotLimitExceeded",
        ],
    ),
    (Class::NotPermitted, &["OperationNotPermitted"]),
    (
        Class::Denied,
        &[
            "UnauthorizedOperation",
            "AuthFailure",
            "AccessDenied",
            "AccessDeniedException",
            "Blocked",
            "OptInRequired",
            "InvalidClientTokenId",
            "InvalidAccessKeyId",
            "UnrecognizedClientException",
            "IncompleteSignature",
            "MissingAuthenticationToken",
            "ExpiredToken",
            "ExpiredTokenException",
        ],
    ),
    (Class::WrongTime, &["RequestExpired", "RequestTimeTooSkewed"]),
    (
        Class::Invalid,
        &[
            "InvalidParameter",
            "InvalidParameterCombination",
            "MissingParameter",
            "MissingAction",
            "UnknownParameter",
            "UnknownVolumeType",
            "UnsupportedOperation",
            "ValidationError",
            "ValidationException",
            "InvalidRequest",
            "InvalidID",
            "InvalidInput",
            "InvalidDomainName",
            "InvalidVolume.ZoneMismatch",
            "InvalidInstanceType",
            "InvalidBlockDeviceMapping",
        ],
    ),
    (
        Class::Unavailable,
        &["InternalError", "InternalFailure", "Unavailable", "ServiceUnavailable", "RequestTimeout"],
    ),
];

fn by_code(code: &str) -> Option<Class> {
    CODES.iter().find(|(_, codes)| codes.contains(&code)).map(|(class, _)| *class)
}

/// Codes that stand for several things.
fn by_words(code: &str, message: &str) -> Option<Class> {
    let says = |words: &str| message.contains(words);
    match code {
        "InvalidChangeBatch" if says("it was not found") => Some(Class::NotFound(ResourceKind::Record)),
        // Also a CNAME beside other records of its name.
        "InvalidChangeBatch" if says("already exists") || says("conflicts with other records") => {
            Some(Class::AlreadyExists)
        }
        "InvalidChangeBatch" if says("do not match the current values") => Some(Class::IncorrectState),
        // "Attachment point /dev/sdf is already in use"
        "InvalidParameterValue" if says("already in use") => Some(Class::InUse),
        // "Your requested instance type (…) is not supported in your requested Availability Zone (…)"
        "Unsupported" if says("Availability Zone") => Some(Class::Capacity),
        "InvalidChangeBatch" | "InvalidParameterValue" | "Unsupported" => Some(Class::Invalid),
        // "Signature expired: 20260101T000000Z is now earlier than 20260101T000500Z (20260101T001000Z - 5 min.)"
        "SignatureDoesNotMatch" | "InvalidSignatureException"
            if says("Signature expired") || says("Signature not yet current") =>
        {
            Some(Class::WrongTime)
        }
        "SignatureDoesNotMatch" | "InvalidSignatureException" => Some(Class::Denied),
        _ => None,
    }
}

fn not_found(code: &str) -> Option<Class> {
    Some(Class::NotFound(match code {
        "InvalidInstanceID.NotFound" => ResourceKind::Instance,
        "InvalidVolume.NotFound" => ResourceKind::Volume,
        "InvalidAttachment.NotFound" => ResourceKind::Attachment,
        "InvalidGroup.NotFound" | "InvalidGroupId.NotFound" | "InvalidSecurityGroupID.NotFound" => {
            ResourceKind::SecurityGroup
        }
        "InvalidPermission.NotFound" => ResourceKind::Rule,
        "InvalidSnapshot.NotFound" => ResourceKind::Snapshot,
        "InvalidAMIID.NotFound" | "InvalidAMIID.Unavailable" => ResourceKind::Image,
        "InvalidSubnetID.NotFound" | "InvalidSubnet" => ResourceKind::Subnet,
        "InvalidVpcID.NotFound" => ResourceKind::Vpc,
        "NoSuchHostedZone" | "HostedZoneNotFound" => ResourceKind::HostedZone,
        "NoSuchChange" => ResourceKind::Change,
        _ => return None,
    }))
}

/// A code that is not in the table. "Not found" is never guessed to be about the subject of the request: whoever
/// deletes on it must know what is gone. (Only a bare 404 without any code means the subject.)
fn by_form(code: &str, status: u16, subject: ResourceKind) -> Class {
    match (code, status) {
        (_, 500..) => Class::Unavailable,
        (_, 429) => Class::Throttled,
        ("", 401 | 403) => Class::Denied,
        ("", 404) => Class::NotFound(subject),
        (code, _) if code.ends_with(".NotFound") => Class::NotFound(ResourceKind::Other),
        (code, _) if code.ends_with(".Malformed") => Class::Invalid,
        (code, _) if code.ends_with("LimitExceeded") => Class::Quota,
        _ => Class::Unrecognised,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: &str, message: &str, status: u16, expect: Class) {
        assert_eq!(classify(code, message, status, ResourceKind::Volume), expect, "{code} {message}");
    }

    #[test]
    fn codes_mean_what_aws_documents() {
        for (code, expect) in [
            ("InvalidInstanceID.NotFound", Class::NotFound(ResourceKind::Instance)),
            ("InvalidVolume.NotFound", Class::NotFound(ResourceKind::Volume)),
            ("InvalidAttachment.NotFound", Class::NotFound(ResourceKind::Attachment)),
            ("InvalidGroup.NotFound", Class::NotFound(ResourceKind::SecurityGroup)),
            ("InvalidPermission.NotFound", Class::NotFound(ResourceKind::Rule)),
            ("InvalidSnapshot.NotFound", Class::NotFound(ResourceKind::Snapshot)),
            ("InvalidAMIID.NotFound", Class::NotFound(ResourceKind::Image)),
            ("InvalidSubnetID.NotFound", Class::NotFound(ResourceKind::Subnet)),
            ("InvalidVpcID.NotFound", Class::NotFound(ResourceKind::Vpc)),
            ("NoSuchHostedZone", Class::NotFound(ResourceKind::HostedZone)),
            ("NoSuchChange", Class::NotFound(ResourceKind::Change)),
            ("InvalidGroup.Duplicate", Class::AlreadyExists),
            ("InvalidPermission.Duplicate", Class::AlreadyExists),
            ("VolumeInUse", Class::InUse),
            ("DependencyViolation", Class::InUse),
            ("RequestLimitExceeded", Class::Throttled),
            ("Throttling", Class::Throttled),
            ("PriorRequestNotComplete", Class::Throttled),
            ("InsufficientInstanceCapacity", Class::Capacity),
            ("InsufficientFreeAddressesInSubnet", Class::Capacity),
            ("VcpuLimitExceeded", Class::Quota),
            ("VolumeLimitExceeded", Class::Quota),
            ("IdempotentParameterMismatch", Class::ParameterMismatch),
            ("IncorrectInstanceState", Class::IncorrectState),
            ("IncorrectState", Class::IncorrectState),
            ("VolumeModificationRateExceeded", Class::TooSoon),
            ("IncorrectModificationState", Class::TooSoon),
            ("SnapshotCreationPerVolumeRateExceeded", Class::TooSoon),
            ("ConcurrentSnapshotLimitExceeded", Class::TooSoon),
            ("PendingSnapshotLimitExceeded", Class::TooSoon),
            ("SnapshotLimitExceeded", Class::Quota),
            ("InvalidSnapshot.InUse", Class::InUse),
            ("OperationNotPermitted", Class::NotPermitted),
            ("UnauthorizedOperation", Class::Denied),
            ("AccessDenied", Class::Denied),
            ("ExpiredToken", Class::Denied),
            ("AuthFailure", Class::Denied),
            ("SignatureDoesNotMatch", Class::Denied),
            ("InvalidSignatureException", Class::Denied),
            ("RequestExpired", Class::WrongTime),
            ("RequestTimeTooSkewed", Class::WrongTime),
            ("InvalidParameterValue", Class::Invalid),
            ("InvalidInput", Class::Invalid),
            ("InternalError", Class::Unavailable),
        ] {
            check(code, "", 400, expect);
        }
    }

    #[test]
    fn no_code_is_listed_twice() {
        let mut codes: Vec<_> = CODES.iter().flat_map(|(_, codes)| *codes).collect();
        let all = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), all);
    }

    #[test]
    fn a_code_outranks_the_status_it_comes_with() {
        // EC2 answers a lack of capacity and its throttling with a 5xx.
        check("InsufficientInstanceCapacity", "", 500, Class::Capacity);
        check("RequestLimitExceeded", "", 503, Class::Throttled);
    }

    #[test]
    fn words_tell_apart_what_a_code_does_not() {
        let batch = |message: &str, expect| check("InvalidChangeBatch", message, 400, expect);
        batch(
            "[Tried to delete resource record set [name='a.', type='A'] but it was not found]",
            Class::NotFound(ResourceKind::Record),
        );
        batch(
            "[Tried to create resource record set [name='a.', type='A'] but it already exists]",
            Class::AlreadyExists,
        );
        batch(
            "[RRSet of type CNAME with DNS name a. is not permitted as it conflicts with other records with the \
            same DNS name in zone b.]",
            Class::AlreadyExists,
        );
        batch(
            "[Tried to delete resource record set [name='a.', type='A'] but the values provided do not match the \
            current values]",
            Class::IncorrectState,
        );
        batch("[Invalid Resource Record: FATAL problem: ARRDATAIllegalIPv4Address]", Class::Invalid);
        check("InvalidParameterValue", "Attachment point /dev/sdf is already in use", 400, Class::InUse);
        check(
            "Unsupported",
            "m9.huge is not supported in your requested Availability Zone (eu-west-1a).",
            400,
            Class::Capacity,
        );
        check("Unsupported", "The requested configuration is not supported.", 400, Class::Invalid);
        for words in [
            "Signature expired: 20260101T000000Z is now earlier than 20260101T000500Z (20260101T001000Z - 5 min.)",
            "Signature not yet current: 20260101T001000Z is still later than 20260101T000500Z (20260101T000000Z + 5 min.)",
        ] {
            for code in ["SignatureDoesNotMatch", "InvalidSignatureException"] {
                check(code, words, 403, Class::WrongTime);
            }
        }
        let secret = "The request signature we calculated does not match the signature you provided.";
        check("SignatureDoesNotMatch", secret, 403, Class::Denied);
    }

    #[test]
    fn an_unknown_code_is_never_taken_for_the_absence_of_the_subject() {
        check("InvalidGizmo.NotFound", "", 400, Class::NotFound(ResourceKind::Other));
        check("NotFound", "", 404, Class::Unrecognised);
        check("Brandnew", "", 400, Class::Unrecognised);
        check("Brandnew", "", 502, Class::Unavailable);
        check("Brandnew", "", 429, Class::Throttled);
        check("InvalidGizmoID.Malformed", "", 400, Class::Invalid);
        check("GizmoLimitExceeded", "", 400, Class::Quota);
        check("", "", 404, Class::NotFound(ResourceKind::Volume));
        check("", "", 403, Class::Denied);
        check("", "", 400, Class::Unrecognised);
    }
}
