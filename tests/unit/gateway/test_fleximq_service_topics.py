"""Services that clients serve by a topic."""

from penstock.gateway.fleximq.service_topics import ServiceTopics
from tests.unit.core.test_broker import join, new_broker


def test_a_path_has_a_server_while_a_client_subscribes_to_its_topic() -> None:
    broker, topics = new_broker(), ServiceTopics()
    assert not topics.has_server("/price")
    topics.start(broker)
    server = join(broker, "service/serve/price", "#")
    assert topics.has_server("/price")
    assert not topics.has_server("/other")
    broker.unsubscribe(server, "service/serve/price")
    assert not topics.has_server("/price")
