#!/usr/bin/env bash
# What each principal may do in Kafka. TOPIC and BOOTSTRAP name the topic and the brokers; KAFKA_ACLS is Kafka's own
# kafka-acls.sh, with --command-config if the brokers ask who you are.
#   BOOTSTRAP=kafka:9092 TOPIC=hongbao.grants deploy/rights/kafka-acls.sh
set -euo pipefail
: "${BOOTSTRAP:?name the brokers}" "${TOPIC:=hongbao.grants}" "${KAFKA_ACLS:=kafka-acls.sh}"

# shellcheck disable=SC2086 # KAFKA_ACLS may have arguments
allow() { $KAFKA_ACLS --bootstrap-server "$BOOTSTRAP" --add --allow-principal "User:$1" "${@:2}"; }

# hongbao-worker publishes, and looks where its batches are: `hongbao work`.
allow hongbao-worker --topic "$TOPIC" --operation Read --operation Write --operation Describe --operation DescribeConfigs
allow hongbao-worker --cluster --operation DescribeConfigs
# hongbao-operator reads: `hongbao audit`, `hongbao tail`. `hongbao init` looks at the settings.
allow hongbao-operator --topic "$TOPIC" --operation Read --operation Describe --operation DescribeConfigs
allow hongbao-operator --cluster --operation DescribeConfigs
