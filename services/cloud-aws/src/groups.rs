//! Security groups.

use aws_sdk_ec2::types as ec2;
use cloud::{Error, IngressRule, NewSecurityGroup, SecurityGroup, SecurityGroupId, Select};

use crate::client::Aws;
use crate::convert::{self, required};
use crate::request::{
    self, AUTHORIZE_INGRESS, CREATE_SECURITY_GROUP, DELETE_SECURITY_GROUP, DESCRIBE_SECURITY_GROUPS, Pages,
    REVOKE_INGRESS,
};

impl Aws {
    pub(crate) async fn create_group(&self, group: &NewSecurityGroup) -> Result<SecurityGroupId, Error> {
        let NewSecurityGroup { name, vpc, description, tags } = group;
        let sent = self
            .ec2
            .create_security_group()
            .group_name(name)
            .vpc_id(vpc)
            .description(description)
            .set_tag_specifications(convert::tagged(ec2::ResourceType::SecurityGroup, tags));
        let answer = self.call(CREATE_SECURITY_GROUP, sent.send()).await?;
        let id = required(answer.group_id, "security group id");
        id.map(SecurityGroupId::from).map_err(|missing| missing.of(CREATE_SECURITY_GROUP))
    }

    pub(crate) async fn groups(&self, select: &Select<SecurityGroupId>) -> Result<Vec<SecurityGroup>, Error> {
        let mut found = Vec::new();
        for filters in request::filters("group-id", select) {
            found.extend(self.groups_by(filters).await?);
        }
        Ok(found)
    }

    pub(crate) async fn find_group(&self, vpc: &str, name: &str) -> Result<Option<SecurityGroup>, Error> {
        let filters = vec![
            request::filter("vpc-id", std::iter::once(vpc)),
            request::filter("group-name", std::iter::once(name)),
        ];
        let found = self.groups_by(filters).await?;
        // A filter knows wildcards, a name does not.
        Ok(found.into_iter().find(|group| group.name == name && group.vpc == vpc))
    }

    async fn groups_by(&self, filters: Vec<ec2::Filter>) -> Result<Vec<SecurityGroup>, Error> {
        let (mut found, mut pages) = (Vec::new(), Pages::of(DESCRIBE_SECURITY_GROUPS));
        while let Some(page) = pages.next()? {
            let sent = self.ec2.describe_security_groups().set_filters(Some(filters.clone()));
            let sent = sent.max_results(request::PAGE).set_next_token(page.token);
            let answer = self.call(DESCRIBE_SECURITY_GROUPS, sent.send()).await?;
            found.extend(answer.security_groups.unwrap_or_default());
            pages.then(answer.next_token);
        }
        convert::all(DESCRIBE_SECURITY_GROUPS, found, convert::security_group)
    }

    pub(crate) async fn authorize(
        &self,
        group: &SecurityGroupId,
        rules: &[IngressRule],
    ) -> Result<(), Error> {
        if rules.is_empty() {
            return Ok(());
        }
        let permissions = rules.iter().map(convert::permission).collect();
        let sent = self.ec2.authorize_security_group_ingress().group_id(group.as_str());
        self.call(AUTHORIZE_INGRESS, sent.set_ip_permissions(Some(permissions)).send()).await.map(drop)
    }

    pub(crate) async fn revoke(&self, group: &SecurityGroupId, rules: &[IngressRule]) -> Result<(), Error> {
        if rules.is_empty() {
            return Ok(());
        }
        let permissions = rules.iter().map(convert::permission).collect();
        let sent = self.ec2.revoke_security_group_ingress().group_id(group.as_str());
        self.call(REVOKE_INGRESS, sent.set_ip_permissions(Some(permissions)).send()).await.map(drop)
    }

    pub(crate) async fn delete_group(&self, group: &SecurityGroupId) -> Result<(), Error> {
        let sent = self.ec2.delete_security_group().group_id(group.as_str());
        self.call(DELETE_SECURITY_GROUP, sent.send()).await.map(drop)
    }
}
