// Package deployment opens a deployment of Hongbao for a program that grabs, consumes or pushes: its connections to
// Redis, its id, its key prefix and its number of shards. The operator's `hongbao init` has created the deployment. A
// program opens one Deployment and passes it to producer, consumer and dedup.
package deployment
