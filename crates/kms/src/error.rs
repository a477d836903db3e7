//! Translates the SDK's errors into those of key services, with the remedy.

use std::error::Error as StdError;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_kms::config::http::HttpResponse;
use aws_sdk_kms::error::{ProvideErrorMetadata, SdkError};
use forebay_seal::ServiceError;

use crate::clear::InTheClear;

/// Sorts the error of a request that concerns `key`.
pub(crate) fn sorted<E>(error: SdkError<E, HttpResponse>, key: &str) -> ServiceError
where
    E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
{
    if let SdkError::ServiceError(service) = &error {
        let status = service.raw().status().as_u16();
        let code = service.err().code().unwrap_or("no code");
        let message = service.err().message().unwrap_or("no message");
        return answered(status, code, message, key);
    }
    let why = chain(&error);
    match &error {
        _ if has_cause::<CredentialsError>(&error) => ServiceError::Refused(format!(
            "there are no credentials for AWS KMS: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or give the \
             machine a role ({why})"
        )),
        _ if has_cause::<InTheClear>(&error) => ServiceError::Refused(
            "the volume key would go to AWS KMS through the network in the clear, since its endpoint is on another machine and \
             has no TLS: set kms_endpoint to its https:// URL (AWS_ENDPOINT_URL counts too, and may be meant for S3: that is \
             AWS_ENDPOINT_URL_S3)"
                .to_owned(),
        ),
        SdkError::DispatchFailure(_) | SdkError::TimeoutError(_) => {
            ServiceError::Unavailable(format!(
                "AWS KMS cannot be reached: check the network, the key's region, and the endpoint if one is set ({why})"
            ))
        }
        SdkError::ConstructionFailure(_) => {
            ServiceError::Refused(format!("cannot use {key}: {why}"))
        }
        _ => ServiceError::Unavailable(format!(
            "AWS KMS gave an unexpected answer: check the endpoint if one is set ({why})"
        )),
    }
}

/// Whether other credentials may help.
pub(crate) fn concerns_credentials<E: ProvideErrorMetadata>(
    error: &SdkError<E, HttpResponse>,
) -> bool {
    let SdkError::ServiceError(service) = error else {
        return false;
    };
    service.err().code().is_some_and(is_about_credentials)
}

fn is_about_credentials(code: &str) -> bool {
    matches!(
        code,
        "ExpiredTokenException"
            | "ExpiredToken"
            | "UnrecognizedClientException"
            | "InvalidClientTokenId"
            | "InvalidSignatureException"
            | "SignatureDoesNotMatch"
            | "IncompleteSignature"
            | "MissingAuthenticationToken"
            | "MissingAuthenticationTokenException"
    )
}

/// The error for an answer of success that is not usable; a repetition makes no sense.
pub(crate) fn odd(why: &str) -> ServiceError {
    ServiceError::Refused(format!("AWS KMS: {why}; check the endpoint if one is set"))
}

/// The error if the region of the key is not known.
pub(crate) fn no_region(key: &str) -> ServiceError {
    ServiceError::Refused(format!(
        "the region of {key} is not known: set it (kms_region, AWS_REGION), or name the key by its ARN"
    ))
}

/// Adds the key that the slot names to the reason why it was not unwrapped with `own`. The slot comes from the bucket,
/// so it may contain anything.
pub(crate) fn of_slot(error: ServiceError, named: &str, own: &str) -> ServiceError {
    match error {
        ServiceError::Refused(why) if named != own => {
            let named = named.escape_debug();
            ServiceError::Refused(format!("{why} (the slot names the key {named})"))
        }
        other => other,
    }
}

fn answered(status: u16, code: &str, message: &str, key: &str) -> ServiceError {
    let advice = match code {
        "AccessDeniedException" => {
            "allow these credentials kms:Decrypt, and to add a slot kms:Encrypt, in the key's policy or in theirs"
        }
        "NotFoundException" => "check the key, its region and its account",
        "DisabledException" => "enable the key",
        "KMSInvalidStateException" => "the key may be waiting for its deletion: cancel that",
        "InvalidKeyUsageException" => "a symmetric key for encryption is needed",
        "InvalidCiphertextException" | "IncorrectKeyException" => {
            "this key did not wrap this volume key: it was wrapped with another key, or the key ring belongs to \
             another volume, or is damaged"
        }
        "ExpiredTokenException" | "ExpiredToken" => "renew the credentials",
        _ if is_about_credentials(code) => "check the credentials",
        "ThrottlingException" | "LimitExceededException" | "RequestLimitExceeded" => {
            return unavailable(status, code, message, "it is overloaded: try again later");
        }
        "DependencyTimeoutException" | "KeyUnavailableException" | "KMSInternalException" => {
            return unavailable(status, code, message, "try again later");
        }
        _ if status >= 500 => return unavailable(status, code, message, "try again later"),
        _ => "see the service's documentation for this code",
    };
    ServiceError::Refused(format!(
        "AWS KMS, about {key}: {message} ({code}); {advice}"
    ))
}

fn unavailable(status: u16, code: &str, message: &str, advice: &str) -> ServiceError {
    ServiceError::Unavailable(format!(
        "AWS KMS: {message} ({code}, status {status}); {advice}"
    ))
}

fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn has_cause<T: StdError + 'static>(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|cause| cause.is::<T>())
}

/// The error and its causes, each once.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut texts: Vec<String> = causes(error).map(|cause| cause.to_string()).collect();
    texts.dedup();
    texts.join(": ")
}
