#!/usr/bin/env bash
# Grants each principal its rights in Kafka. TOPIC is the topic, and BOOTSTRAP is the brokers. KAFKA_ACLS is the path of
# Kafka's own kafka-acls.sh, with --command-config if the brokers require a login.
#   BOOTSTRAP=kafka:9092 TOPIC=hongbao.grants deploy/rights/kafka-acls.sh
set -euo pipefail
: "${BOOTSTRAP:?name the brokers}" "${TOPIC:=hongbao.grants}" "${KAFKA_ACLS:=kafka-acls.sh}"

# shellcheck disable=SC2086 # KAFKA_ACLS may have arguments
allow() { $KAFKA_ACLS --bootstrap-server "$BOOTSTRAP" --add --allow-principal "User:$1" "${@:2}"; }

# hongbao-worker is for `hongbao work`: it publishes, and reads the topic to find its own batches.
allow hongbao-worker --topic "$TOPIC" --operation Read --operation Write --operation Describe --operation DescribeConfigs
allow hongbao-worker --cluster --operation DescribeConfigs
# hongbao-operator only reads: `hongbao audit` and `hongbao tail` read the topic, `hongbao init` its settings.
allow hongbao-operator --topic "$TOPIC" --operation Read --operation Describe --operation DescribeConfigs
allow hongbao-operator --cluster --operation DescribeConfigs
