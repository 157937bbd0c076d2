//! EC2 instances.

use aws_sdk_ec2::types as ec2;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cloud::{
    ClientToken, Error, Instance, InstanceId, InstanceState, Launch, Protection, SecurityGroupId, Select,
    Tags, UserData,
};

use crate::client::Aws;
use crate::convert::{self, required};
use crate::request::{
    self, CREATE_TAGS, DESCRIBE_INSTANCE_ATTRIBUTE, DESCRIBE_INSTANCES, MODIFY_INSTANCE_ATTRIBUTE,
    MODIFY_INSTANCE_METADATA_OPTIONS, MODIFY_NETWORK_INTERFACE_ATTRIBUTE, Pages, RUN_INSTANCES,
    STOP_INSTANCES, TERMINATE_INSTANCES,
};

/// The machine's credentials are for its own processes: no metadata without a session, and none to containers, whose packets take a hop
/// more.
const SESSIONS_ALONE: ec2::HttpTokensState = ec2::HttpTokensState::Required;
const OWN_PROCESSES: i32 = 1;

impl Aws {
    pub(crate) async fn run(&self, launch: &Launch, token: &ClientToken) -> Result<Instance, Error> {
        let Launch { image, instance_type, subnet, security_groups, user_data, .. } = launch;
        let Launch { instance_profile, protection, tags, .. } = launch;
        let groups = security_groups.iter().map(|group| group.as_str().to_owned()).collect();
        let profile = instance_profile
            .as_ref()
            .map(|name| ec2::IamInstanceProfileSpecification::builder().name(name).build());
        let metadata = ec2::InstanceMetadataOptionsRequest::builder()
            .http_tokens(SESSIONS_ALONE)
            .http_put_response_hop_limit(OWN_PROCESSES)
            .build();
        let sent = self
            .ec2
            .run_instances()
            .client_token(token.as_str())
            .min_count(1)
            .max_count(1)
            .image_id(image)
            .instance_type(instance_type.as_str().into())
            .subnet_id(subnet)
            .set_security_group_ids(Some(groups))
            .user_data(BASE64.encode(user_data.expose()))
            .set_iam_instance_profile(profile)
            .metadata_options(metadata)
            .disable_api_termination(protection.termination)
            .disable_api_stop(protection.stop)
            .set_tag_specifications(convert::tagged(ec2::ResourceType::Instance, tags));
        let answer = Box::pin(self.call(RUN_INSTANCES, sent.send())).await?;
        let first = answer.instances.and_then(|instances| instances.into_iter().next());
        required(first, "instance").and_then(convert::instance).map_err(|missing| missing.of(RUN_INSTANCES))
    }

    pub(crate) async fn instances(&self, select: &Select<InstanceId>) -> Result<Vec<Instance>, Error> {
        convert::all(DESCRIBE_INSTANCES, self.shown(select).await?, convert::instance)
    }

    /// Instances as EC2 describes them.
    async fn shown(&self, select: &Select<InstanceId>) -> Result<Vec<ec2::Instance>, Error> {
        let mut found = Vec::new();
        for filters in request::filters("instance-id", select) {
            let mut pages = Pages::of(DESCRIBE_INSTANCES);
            while let Some(page) = pages.next()? {
                let sent = self.ec2.describe_instances().set_filters(Some(filters.clone()));
                let sent = sent.max_results(request::PAGE).set_next_token(page.token);
                let answer = self.call(DESCRIBE_INSTANCES, sent.send()).await?;
                let reservations = answer.reservations.unwrap_or_default().into_iter();
                found.extend(reservations.flat_map(|one| one.instances.unwrap_or_default()));
                pages.then(answer.next_token);
            }
        }
        Ok(found)
    }

    pub(crate) async fn terminate(&self, instance: &InstanceId) -> Result<InstanceState, Error> {
        let sent = self.ec2.terminate_instances().instance_ids(instance.as_str());
        let answer = self.call(TERMINATE_INSTANCES, sent.send()).await?;
        state_of(answer.terminating_instances).ok_or_else(|| request::lacks(TERMINATE_INSTANCES, "new state"))
    }

    pub(crate) async fn stop(&self, instance: &InstanceId) -> Result<InstanceState, Error> {
        let sent = self.ec2.stop_instances().instance_ids(instance.as_str());
        let answer = self.call(STOP_INSTANCES, sent.send()).await?;
        state_of(answer.stopping_instances).ok_or_else(|| request::lacks(STOP_INSTANCES, "new state"))
    }

    /// EC2 changes one attribute in a request. Termination comes first when both are to be on, last when both are to be
    /// off: half done then still guards what cannot be undone.
    pub(crate) async fn protect(&self, instance: &InstanceId, wanted: Protection) -> Result<(), Error> {
        if wanted.termination {
            self.protect_termination(instance, true).await?;
        }
        let value = ec2::AttributeBooleanValue::builder().value(wanted.stop).build();
        let sent = self.ec2.modify_instance_attribute().instance_id(instance.as_str());
        self.call(MODIFY_INSTANCE_ATTRIBUTE, sent.disable_api_stop(value).send()).await?;
        if !wanted.termination {
            self.protect_termination(instance, false).await?;
        }
        Ok(())
    }

    async fn protect_termination(&self, instance: &InstanceId, on: bool) -> Result<(), Error> {
        let value = ec2::AttributeBooleanValue::builder().value(on).build();
        let sent = self.ec2.modify_instance_attribute().instance_id(instance.as_str());
        self.call(MODIFY_INSTANCE_ATTRIBUTE, sent.disable_api_termination(value).send()).await.map(drop)
    }

    /// EC2 takes groups of a machine only while it has one interface, and those of an interface however many there are: where pods have
    /// addresses of the VPC, machines have several.
    pub(crate) async fn put_into(
        &self,
        instance: &InstanceId,
        groups: &[SecurityGroupId],
    ) -> Result<(), Error> {
        let shown = self.shown(&Select::one(instance.clone())).await?;
        let interface = shown.into_iter().find_map(convert::first_interface);
        let lacks = || request::lacks(DESCRIBE_INSTANCES, "network interface of the machine");
        let interface = interface.ok_or_else(lacks)?;
        let groups = groups.iter().map(|group| group.as_str().to_owned()).collect();
        let sent = self.ec2.modify_network_interface_attribute().network_interface_id(interface);
        let sent = sent.set_groups(Some(groups)).send();
        self.call(MODIFY_NETWORK_INTERFACE_ATTRIBUTE, sent).await.map(drop)
    }

    /// What is not named stays as it is.
    pub(crate) async fn guard(&self, instance: &InstanceId) -> Result<(), Error> {
        let sent = self.ec2.modify_instance_metadata_options().instance_id(instance.as_str());
        let sent = sent.http_tokens(SESSIONS_ALONE).http_put_response_hop_limit(OWN_PROCESSES).send();
        self.call(MODIFY_INSTANCE_METADATA_OPTIONS, sent).await.map(drop)
    }

    pub(crate) async fn protection(&self, instance: &InstanceId) -> Result<Protection, Error> {
        let termination = self.attribute(instance, ec2::InstanceAttributeName::DisableApiTermination).await?;
        let stop = self.attribute(instance, ec2::InstanceAttributeName::DisableApiStop).await?;
        // A value that is not said is not "off": off is what lets a machine be destroyed.
        let lacks = || request::lacks(DESCRIBE_INSTANCE_ATTRIBUTE, "value of a protection");
        let termination = termination.disable_api_termination.and_then(|one| one.value).ok_or_else(lacks)?;
        let stop = stop.disable_api_stop.and_then(|one| one.value).ok_or_else(lacks)?;
        Ok(Protection { termination, stop })
    }

    pub(crate) async fn user_data(&self, instance: &InstanceId) -> Result<Option<UserData>, Error> {
        let answer = self.attribute(instance, ec2::InstanceAttributeName::UserData).await?;
        let encoded = answer.user_data.and_then(|one| one.value).filter(|value| !value.is_empty());
        let Some(encoded) = encoded else { return Ok(None) };
        let text = BASE64.decode(encoded.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| request::lacks(DESCRIBE_INSTANCE_ATTRIBUTE, "readable user data"))?;
        Ok(Some(UserData::new(text)))
    }

    async fn attribute(
        &self,
        instance: &InstanceId,
        attribute: ec2::InstanceAttributeName,
    ) -> Result<aws_sdk_ec2::operation::describe_instance_attribute::DescribeInstanceAttributeOutput, Error>
    {
        let sent = self.ec2.describe_instance_attribute().instance_id(instance.as_str()).attribute(attribute);
        self.call(DESCRIBE_INSTANCE_ATTRIBUTE, sent.send()).await
    }

    pub(crate) async fn tag(&self, resources: &[&str], tags: &Tags) -> Result<(), Error> {
        if resources.is_empty() || tags.is_empty() {
            return Ok(());
        }
        let resources = resources.iter().map(|&id| id.to_owned()).collect();
        let sent = self.ec2.create_tags().set_resources(Some(resources));
        self.call(CREATE_TAGS, sent.set_tags(Some(convert::sdk_tags(tags))).send()).await.map(drop)
    }
}

fn state_of(changes: Option<Vec<ec2::InstanceStateChange>>) -> Option<InstanceState> {
    let state = changes?.into_iter().next()?.current_state?.name?;
    Some(state.as_str().into())
}
