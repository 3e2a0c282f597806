package winners

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/FastFilter/xorfilter"
	"github.com/cespare/xxhash/v2"

	"github.com/hongbao-project/hongbao"
)

// Filter is the set of all users who have packets of a campaign at one revision, i.e. of one plan, up to one
// generation. It can have false positives.
type Filter struct {
	revision string
	users    int
	fuse     *xorfilter.BinaryFuse8
}

// New returns a filter of users. users may contain duplicates.
func New(revision string, users []string) (*Filter, error) {
	hashes := make([]uint64, len(users))
	for i, u := range users {
		hashes[i] = xxhash.Sum64String(u)
	}
	return newFilter(revision, hashes)
}

// newFilter returns a filter of the hashes of users. It sorts the hashes.
func newFilter(revision string, hashes []uint64) (*Filter, error) {
	hashes = unique(hashes)
	if len(hashes) == 0 {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "no winners: nothing to filter")
	}
	fuse, err := xorfilter.PopulateBinaryFuse8(hashes)
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "make a filter of %d winners: %w", len(hashes), err)
	}
	return &Filter{revision: revision, users: len(hashes), fuse: fuse}, nil
}

func unique(hashes []uint64) []uint64 {
	slices.Sort(hashes)
	return slices.Compact(hashes)
}

// Has reports whether a user may have a packet. It is always true for a user who has one.
func (f *Filter) Has(user string) bool { return f.fuse.Contains(xxhash.Sum64String(user)) }

// Revision returns the revision of the campaign for which the filter was built.
func (f *Filter) Revision() string { return f.revision }

// partBytes is the size of the parts in which a filter is stored and read.
const partBytes = 64 << 10

// version is the version of a filter's format in Redis, and of the algorithms in the libraries xorfilter and xxhash.
// Builds with the same version must find the same users in a filter.
const version = "1"

// encode returns the head, which is stored last, and the body, which is stored in parts. The body has the numeric
// fields of the fuse filter in little-endian order, and its fingerprints.
func (f *Filter) encode() (head string, body []byte) {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, numberBytes+len(f.fuse.Fingerprints)), f.fuse.Seed)
	fuse := f.fuse
	for _, n := range []uint32{fuse.SegmentLength, fuse.SegmentLengthMask, fuse.SegmentCount, fuse.SegmentCountLength} {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	b = append(b, f.fuse.Fingerprints...)
	text := fmt.Sprintf("%s %s %d %d", version, f.revision, f.users, len(b))
	return fmt.Sprintf("%s %016x", text, checksum(text, b)), b
}

const numberBytes = 8 + 4*4

func checksum(text string, body []byte) uint64 {
	d := xxhash.New()
	_, _ = d.WriteString(text) // never fails
	_, _ = d.Write(body)       // the same
	return d.Sum64()
}

// head is the parsed head of a stored filter.
type head struct {
	text     string // the part of the head that the checksum covers
	revision string
	users    int
	bytes    int
	checksum uint64
}

// errDamaged says that this build can't use the stored data as a filter.
var errDamaged = errors.New("it is damaged, or of another build")

func parseHead(text string) (head, error) {
	var h head
	var ver string
	fields := strings.Split(text, " ")
	if len(fields) == 5 {
		h.text = strings.Join(fields[:4], " ")
	}
	n, err := fmt.Sscanf(text, "%s %s %d %d %x", &ver, &h.revision, &h.users, &h.bytes, &h.checksum)
	if n != 5 || err != nil || len(fields) != 5 || ver != version || h.users < 1 || h.bytes <= numberBytes {
		return h, fmt.Errorf("the head %.200q: %w", text, errDamaged)
	}
	return h, nil
}

func (h *head) parts() int { return (h.bytes + partBytes - 1) / partBytes }

// decode returns the filter of a body. It checks that the numeric fields are consistent; otherwise a look-up could
// read beyond the fingerprints.
func (h *head) decode(body []byte) (*Filter, error) {
	if len(body) != h.bytes || checksum(h.text, body) != h.checksum {
		return nil, fmt.Errorf("its %d bytes are not the %d of its head: %w", len(body), h.bytes, errDamaged)
	}
	at := body[8:]
	number := func() uint32 {
		n := binary.LittleEndian.Uint32(at)
		at = at[4:]
		return n
	}
	fuse := &xorfilter.BinaryFuse8{
		Seed: binary.LittleEndian.Uint64(body), SegmentLength: number(), SegmentLengthMask: number(), SegmentCount: number(),
		SegmentCountLength: number(), Fingerprints: body[numberBytes:],
	}
	length, count := uint64(fuse.SegmentLength), uint64(fuse.SegmentCount)
	if length == 0 || length&(length-1) != 0 || uint64(fuse.SegmentLengthMask) != length-1 ||
		uint64(fuse.SegmentCountLength) != count*length || uint64(len(fuse.Fingerprints)) != (count+2)*length {
		return nil, fmt.Errorf("its numbers do not fit together: %w", errDamaged)
	}
	return &Filter{revision: h.revision, users: h.users, fuse: fuse}, nil
}

// prove encodes and decodes the filter, and returns an error if a winner is then missing. A missing winner would be
// answered sold_out.
func (f *Filter) prove(hashes []uint64) error {
	text, body := f.encode()
	h, err := parseHead(text)
	if err != nil {
		return hongbao.Errorf(hongbao.ClassBroken, "read a filter of %d winners before it is stored: %w", f.users, err)
	}
	stored, err := h.decode(body)
	if err != nil {
		return hongbao.Errorf(hongbao.ClassBroken, "read a filter of %d winners before it is stored: %w", f.users, err)
	}
	for _, hash := range hashes {
		if !stored.fuse.Contains(hash) {
			return hongbao.Errorf(hongbao.ClassBroken, "a filter of %d winners lacks one of them, so it is not stored: report "+
				"this as a bug of this build; until then producers ask Redis for each loser", f.users)
		}
	}
	return nil
}
