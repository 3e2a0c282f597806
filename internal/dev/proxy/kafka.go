package proxy

import "encoding/binary"

// The API keys of Kafka requests, for KafkaRequest.
const (
	KafkaProduce        int16 = 0
	KafkaFetch          int16 = 1
	KafkaMetadata       int16 = 3
	KafkaOffsetCommit   int16 = 8
	KafkaInitProducerID int16 = 22
)

// KafkaRequest returns a match function for SwallowAnswers that finds Kafka requests of one kind.
func KafkaRequest(key int16) func(request []byte) bool {
	return func(request []byte) bool {
		// size int32, API key int16, API version int16, correlation id int32, length of the client id int16
		for len(request) >= 14 {
			size := int(int32(binary.BigEndian.Uint32(request)))
			version := binary.BigEndian.Uint16(request[6:])
			id := int(int16(binary.BigEndian.Uint16(request[12:])))
			if size < 10 || version > 50 || id < -1 || id > size {
				return false // not the start of a request, but the middle of a long one
			}
			if int16(binary.BigEndian.Uint16(request[4:])) == key {
				return true
			}
			if size+4 >= len(request) {
				return false
			}
			request = request[size+4:]
		}
		return false
	}
}
