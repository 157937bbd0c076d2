"""Strict answers about security groups and tags, and the class with all of EC2."""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.responses._base_response import EC2BaseResponse

from . import limits
from .ec2_storage import StrictStorage
from .errors import AwsError, not_found
from .moto_patches import source
from .places import page

# Moto writes these as constants because its resources have no passing states.
MADE_UP_BY_MOTO = {
    "RunInstances.Reservation.Instances.Instance.State",
    "CreateVolumeResponse.State",
    "ModifyVolumeResponse.VolumeModification.ModificationState",
    "ModifyVolumeResponse.VolumeModification.Progress",
}


class StrictEC2(StrictStorage):
    """All of EC2, strictly."""

    RESPONSE_KEY_PATH_TO_TRANSFORMER = {
        path: transform
        for path, transform in EC2BaseResponse.RESPONSE_KEY_PATH_TO_TRANSFORMER.items()
        if path not in MADE_UP_BY_MOTO
    }

    @property
    def ec2_backend(self) -> Any:
        """The region's backend, or an older copy of it for a describe that lags."""
        if self.past is not None:
            return self.past
        return super().ec2_backend

    def create_security_group(self) -> ActionResult:
        """Create; there is no client token, the name in its VPC is the identity."""
        made: Any = super().create_security_group().result
        self.world.conceal(made["GroupId"])
        return ActionResult(made)

    def describe_security_groups(self) -> ActionResult:
        """Groups that describes know of, page by page."""
        self._refuse_unseen(self._get_param("GroupIds", []))
        found: Any = super().describe_security_groups().result
        seen = [group for group in found["SecurityGroups"] if not self.world.concealed(group.id)]
        paged, token = page(seen, lambda group: group.id, self.params, (5, 1000))
        return ActionResult({"SecurityGroups": paged, "NextToken": token})

    def authorize_security_group_ingress(self) -> ActionResult:
        """Add rules to a group that is known: all of them, or none where it would have too many."""
        group_id = self._get_param("GroupId")
        self._refuse_unseen([group_id])
        group = self.ec2_backend.get_security_group_from_id(group_id)
        if group is not None:
            limits.check_rules([*map(source, group.ingress_rules), *self._asked()])
        return super().authorize_security_group_ingress()

    def revoke_security_group_ingress(self) -> ActionResult:
        """Take rules from a group that is known."""
        self._refuse_unseen([self._get_param("GroupId")])
        return super().revoke_security_group_ingress()

    def delete_security_group(self) -> ActionResult:
        """Delete a group that no machine, interface or other group refers to."""
        group_id = self._get_param("GroupId")
        self._refuse_unseen([group_id])
        group = self.ec2_backend.get_security_group_from_id(group_id)
        if group is None:
            raise not_found("sg", str(group_id))
        if group.name == "default":
            raise AwsError(
                "CannotDelete",
                f'the specified group: "{group_id}" name: "default" cannot be deleted by a user',
            )
        if self._is_used(group):
            raise AwsError("DependencyViolation", f"resource {group_id} has a dependent object")
        self.ec2_backend.delete_security_group(group_id=group_id)
        return EmptyResult()

    def create_tags(self) -> ActionResult:
        """Tag resources that are known."""
        self._refuse_unseen(self._get_param("Resources", []))
        limits.check_tags({tag["Key"]: tag.get("Value") for tag in self._get_param("Tags", [])})
        return super().create_tags()

    def _asked(self) -> list[dict[str, Any]]:
        """Whom rules are asked for, one by one."""
        names = ("ip_ranges", "source_groups", "prefix_list_ids")
        asked = self._process_rules_from_querystring()
        return [found for rules in asked for name in names for found in rules[name]]

    def _is_used(self, group: Any) -> bool:
        backend = self.ec2_backend
        machines = (
            group in instance.security_groups
            for instance in backend.all_instances()
            if instance.state != "terminated"
        )
        interfaces = (group in eni.group_set for eni in backend.enis.values())
        return any(machines) or any(interfaces) or self._is_referenced(group)

    def _is_referenced(self, group: Any) -> bool:
        for groups in self.ec2_backend.groups.values():
            for other in groups.values():
                if other is group:
                    continue
                for rule in (*other.ingress_rules, *other.egress_rules):
                    if _source_of(rule) == group.id:
                        return True
        return False


def _source_of(rule: Any) -> str | None:
    source = getattr(rule, "source_group", None) or {}
    return source.get("GroupId")
