"""Strict answers about instances: launch, describe, stop, terminate, protect."""

from __future__ import annotations

import base64
import binascii
import uuid
from typing import Any

from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import utcnow
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import StateReason
from moto.ec2.responses import EC2Response

from . import limits
from .calls import Gated
from .errors import AwsError, not_found
from .places import Instance, is_true, page, set_state, state_of

LONGEST_USER_DATA = 16_384
MOST_FILTER_VALUES = 200
MOST_HOPS = 64
PROTECTIONS = {
    "disableApiTermination": "disable_api_termination",
    "disableApiStop": "disable_api_stop",
}
# Attributes that can only be changed while an instance is stopped.
NEEDS_STOPPED = ("InstanceType", "UserData", "Kernel", "Ramdisk", "EbsOptimized")
ATTRIBUTES = (*NEEDS_STOPPED, "DisableApiTermination", "DisableApiStop", "SourceDestCheck")


class StrictInstances(Gated, EC2Response):
    """Instances as EC2 answers them."""

    def run_instances(self) -> ActionResult:
        """Launch, unless the client token has launched before."""
        world = self.world
        memory = world.settings.token_memory_s
        reservation = world.tokens.recall(self.call, world.now(), memory)
        if reservation is None:
            self._check_launch()
            reservation = self._launch()
            world.tokens.remember(self.call, world.now(), reservation)
        return ActionResult(reservation)

    def describe_instances(self) -> ActionResult:
        """Reservations that describes know of, page by page."""
        ids = self._get_param("InstanceIds", [])
        if ids and "MaxResults" in self.params:
            raise AwsError(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            )
        self._refuse_unseen(ids)
        filters = self._filters_from_querystring()
        if ids:
            unique = list(dict.fromkeys(ids))
            found = self.ec2_backend.get_reservations_by_instance_ids(unique, filters=filters)
        else:
            found = self.ec2_backend.describe_instances(filters=filters)
        seen = [reservation for reservation in found if self._seen_of(reservation)]
        paged, token = page(seen, lambda item: item.id, self.params, (5, 1000))
        return ActionResult({"Reservations": paged, "NextToken": token})

    def terminate_instances(self) -> ActionResult:
        """Begin to terminate; all or none, if one of them is protected."""
        instances = self._instances()
        for instance in instances:
            self._refuse_protected(instance)
        return self._moved(
            "TerminatingInstances", instances, "shutting-down", ("terminated", "shutting-down")
        )

    def stop_instances(self) -> ActionResult:
        """Begin to stop; all or none."""
        instances = self._instances()
        for instance in instances:
            if is_true(instance.disable_api_stop):
                raise _protected(instance, "stopped", "disableApiStop")
            if instance.state not in ("running", "stopping", "stopped"):
                raise _wrong_state(instance, "stopped")
        return self._moved("StoppingInstances", instances, "stopping", ("stopping", "stopped"))

    def start_instances(self) -> ActionResult:
        """Begin to start stopped instances again."""
        instances = self._instances()
        for instance in instances:
            if instance.state not in ("stopped", "pending", "running"):
                raise _wrong_state(instance, "started")
            if instance.state == "stopped":
                instance.launch_time = utcnow()
        return self._moved("StartingInstances", instances, "pending", ("pending", "running"))

    def reboot_instances(self) -> ActionResult:
        """Reboot running instances; their state does not change."""
        for instance in self._instances():
            if instance.state != "running":
                raise _wrong_state(instance, "rebooted")
        return EmptyResult()

    def modify_instance_attribute(self) -> ActionResult:
        """Change one attribute, or the groups; EC2 takes no more than one in a call."""
        instance = self._instance(self._get_param("InstanceId"))
        given = [name for name in ATTRIBUTES if name in self.params]
        if len(given) > 1:
            raise AwsError(
                "InvalidParameterCombination",
                "Fields for multiple attribute types specified: " + ", ".join(given),
            )
        if instance.state in ("terminated", "shutting-down"):
            raise _wrong_state(instance, "modified")
        if groups := self._get_param("Groups", []):
            if len(instance.nics) > 1:
                raise AwsError(
                    "InvalidInstanceID",
                    f"There are multiple interfaces attached to instance '{instance.id}'."
                    " Please specify an interface ID for the operation instead.",
                )
            self._put_into(instance.nics[0], groups)
            return EmptyResult()
        name = self._get_param("Attribute") or ""
        value = self._get_param("Value")
        if not name and given:
            name = given[0][0].lower() + given[0][1:]
            value = self._get_param(f"{given[0]}.Value")
        if name in PROTECTIONS:
            setattr(instance, PROTECTIONS[name], is_true(value))
            return EmptyResult()
        if name and name[0].upper() + name[1:] in NEEDS_STOPPED and instance.state != "stopped":
            raise AwsError(
                "IncorrectInstanceState",
                f"The instance '{instance.id}' is not in the 'stopped' state.",
            )
        return super().modify_instance_attribute()

    def modify_instance_metadata_options(self) -> ActionResult:
        """Change who may ask for metadata; what is not given stays as it is."""
        instance = self._instance(self._get_param("InstanceId"))
        if instance.state in ("terminated", "shutting-down"):
            raise _wrong_state(instance, "modified")
        options = instance.metadata_options
        if (tokens := self._get_param("HttpTokens")) is not None:
            options.http_tokens = _one_of("HttpTokens", tokens, ("optional", "required"))
        if (endpoint := self._get_param("HttpEndpoint")) is not None:
            options.http_endpoint = _one_of("HttpEndpoint", endpoint, ("disabled", "enabled"))
        if (hops := self._get_int_param("HttpPutResponseHopLimit")) is not None:
            if not 1 <= hops <= MOST_HOPS:
                raise AwsError(
                    "InvalidParameterValue",
                    f"Value ({hops}) for parameter HttpPutResponseHopLimit is invalid.",
                )
            options.http_put_response_hop_limit = hops
        return ActionResult({"InstanceId": instance.id, "InstanceMetadataOptions": options})

    def modify_network_interface_attribute(self) -> ActionResult:
        """Change an interface; the groups of the first one are those of its machine."""
        groups = self._get_param("Groups", [])
        if not groups:
            return super().modify_network_interface_attribute()
        interface_id = self._get_param("NetworkInterfaceId")
        self._put_into(self.ec2_backend.get_network_interface(interface_id), groups)
        return EmptyResult()

    def describe_instance_types(self) -> ActionResult:
        """The catalogue of instance types."""
        try:
            return super().describe_instance_types()
        except ServiceException as error:
            raise AwsError(error.code.removesuffix(".NotFound"), error.message) from error

    def _filters_from_querystring(self) -> Any:
        filters = super()._filters_from_querystring()
        if sum(len(values) for values in filters.values()) > MOST_FILTER_VALUES:
            raise AwsError(
                "FilterLimitExceeded",
                "The maximum number of filter values specified on a single call is"
                f" {MOST_FILTER_VALUES}",
            )
        return filters

    def _parse_tag_specification(self, expected_type: str | None = None) -> Any:
        asked = super()._parse_tag_specification(expected_type)
        for tags in asked.values():
            limits.check_tags(tags)
        return asked

    def _check_launch(self) -> None:
        if (kind := self._get_param("InstanceType")) and kind not in INSTANCE_TYPES:
            raise AwsError("InvalidParameterValue", f"Invalid value '{kind}' for InstanceType.")
        data = self._get_param("UserData")
        if data:
            try:
                raw = base64.b64decode(data, validate=False)
            except (binascii.Error, ValueError) as error:
                raise AwsError("InvalidUserData.Malformed", "User data is not base64.") from error
            if len(raw) > LONGEST_USER_DATA:
                raise AwsError("InvalidParameterValue", "User data is limited to 16384 bytes")
        if subnet_id := self._get_param("SubnetId"):
            groups = self._get_param("SecurityGroupIds", [])
            self._check_groups(groups, self.ec2_backend.get_subnet(subnet_id))

    def _put_into(self, interface: Any, group_ids: list[str]) -> None:
        """Put an interface into these groups and no others."""
        self._check_groups(group_ids, interface.subnet)
        groups = [self.ec2_backend.get_security_group_from_id(group_id) for group_id in group_ids]
        # Moto keeps those of a machine and those of its interface apart.
        interface._group_set = groups
        if interface.instance is not None and interface.device_index == 0:
            interface.instance.security_groups = list(groups)

    def _check_groups(self, group_ids: list[str], subnet: Any) -> None:
        for group_id in group_ids:
            self._refuse_unseen([group_id])
            group = self.ec2_backend.get_security_group_from_id(group_id)
            if group is None:
                raise not_found("sg", group_id)
            if group.vpc_id != subnet.vpc_id:
                raise AwsError(
                    "InvalidParameter",
                    f"Security group {group_id} and subnet {subnet.id} belong to"
                    " different networks.",
                )

    def _launch(self) -> Any:
        backend = self.ec2_backend
        try:
            reservation: Any = super().run_instances().result
        finally:
            # Moto leaves an empty reservation behind when a launch fails.
            for empty in [key for key, item in backend.reservations.items() if not item.instances]:
                del backend.reservations[empty]
        for instance in reservation.instances:
            # Moto does not read this parameter.
            instance.disable_api_termination = is_true(self._get_param("DisableApiTermination"))
            for nic in instance.nics.values():
                nic.delete_on_termination = True
            self.world.conceal(instance.id)
            self._move(instance, "pending")
        return reservation

    def _moved(
        self, answer: str, instances: list[Instance], state: str, already: tuple[str, ...]
    ) -> ActionResult:
        moves = []
        for instance in instances:
            previous = state_of(instance)
            if instance.state not in already:
                self._move(instance, state)
                _explain(instance, state)
            moves.append(
                {
                    "InstanceId": instance.id,
                    "PreviousState": previous,
                    "CurrentState": state_of(instance),
                }
            )
        return ActionResult({answer: moves})

    def _move(self, instance: Instance, state: str) -> None:
        """Enter a passing state; the timeline leads out of it."""
        settings = self.world.settings
        seconds = {
            "pending": settings.instance_pending_s,
            "stopping": settings.instance_stopping_s,
            "shutting-down": settings.instance_shutting_down_s,
        }[state]
        instance.slipway_mark = uuid.uuid4().hex
        set_state(instance, state)
        self.world.later(
            seconds, f"instance-{state}", self.call.place, instance.id, instance.slipway_mark
        )

    def _instances(self) -> list[Instance]:
        ids = list(dict.fromkeys(self._get_param("InstanceIds", [])))
        if not ids:
            raise AwsError("InvalidParameterCombination", "No instances specified")
        return [self._instance(instance_id) for instance_id in ids]

    def _instance(self, instance_id: str) -> Instance:
        self._refuse_unseen([instance_id])
        instance = self.ec2_backend.get_instance_by_id(instance_id)
        if instance is None:
            raise not_found("i", instance_id)
        return instance

    def _refuse_protected(self, instance: Instance) -> None:
        if instance.state in ("terminated", "shutting-down"):
            return
        # Stop protection also protects from termination.
        for attribute, name in PROTECTIONS.items():
            if is_true(getattr(instance, name)):
                raise _protected(instance, "terminated", attribute)

    def _refuse_unseen(self, ids: list[str]) -> None:
        for resource_id in ids:
            if self.world.concealed(resource_id):
                raise not_found(resource_id.split("-")[0], resource_id)

    def _seen_of(self, reservation: Any) -> bool:
        # The reservation is Moto's copy for this answer.
        reservation.instances = [
            item for item in reservation.instances if not self.world.concealed(item.id)
        ]
        return bool(reservation.instances)


def _explain(instance: Instance, state: str) -> None:
    if state == "pending":
        instance.state_reason = StateReason()
    else:
        code = "Client.UserInitiatedShutdown"
        instance.state_reason = StateReason(f"{code}: User initiated shutdown", code)


def _protected(instance: Instance, what: str, attribute: str) -> AwsError:
    return AwsError(
        "OperationNotPermitted",
        f"The instance '{instance.id}' may not be {what}."
        f" Modify its '{attribute}' instance attribute and try again.",
    )


def _one_of(parameter: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise AwsError(
            "InvalidParameterValue", f"Value ({value}) for parameter {parameter} is invalid."
        )
    return value


def _wrong_state(instance: Instance, what: str) -> AwsError:
    return AwsError(
        "IncorrectInstanceState",
        f"The instance '{instance.id}' is not in a state from which it can be {what}.",
    )
