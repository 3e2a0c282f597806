// Package broker connects to the brokers of Kafka. It refuses a server that answers, but not as a broker: a Kafka client
// takes the first four bytes of each answer for its size, and would reserve 1.2 GB for the "HTTP" of a web server.
package broker
