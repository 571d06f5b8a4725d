package assemble

func lineShape(p *part) []int { return []int{len(p.lines), p.taken(0)} }

func flatShape(p *part) []int {
	n := 0
	for i := range p.lines {
		n += p.taken(i)
	}
	return []int{n}
}

func paddedBoundsShape(p *part) []int { return []int{len(p.lines), boundsWidth(p.lines)} }

func longestShape(p *part) []int { return []int{len(p.lines)} }

func boundsShape(p *part) []int { return []int{boundsCount(&p.lines[0])} }

func segmentBoundsShape(p *part) []int { return []int{len(p.lines) + 1} }

func oneShape(*part) []int { return []int{1} }

func scalarShape(*part) []int { return []int{} }
